"""The database of a search: any that SQLAlchemy can reach, made safe for several processes. It imports Optuna."""

from __future__ import annotations

import random
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import optuna
import sqlalchemy
from optuna.storages import RDBStorage
from sqlalchemy.exc import ArgumentError, DBAPIError, SQLAlchemyError

from ..runs import UserError

BEAT_SECONDS = 10
"""How often a worker says that it is alive."""
GRACE_SECONDS = 60
"""After so long without a word the worker counts as dead, and another one takes its trials."""
DATABASE_ERRORS = (SQLAlchemyError, optuna.exceptions.StorageInternalError)
"""What a database that does not answer raises."""
_EXAMPLES = "sqlite:////folder/search.db or postgresql://user:password@host/name"
_TRIES = 8
_BUSY_SECONDS = 60.0


def open_database(url: str) -> RDBStorage:
    """Connect, and make the tables of a new database. What is wrong with the address is a :class:`UserError`."""
    parsed = _parsed(url)
    sqlite = parsed.get_backend_name() == "sqlite"
    options: dict[str, Any] = {"connect_args": {"timeout": _BUSY_SECONDS}} if sqlite else {"pool_pre_ping": True}
    for left in reversed(range(_TRIES)):
        try:
            with quiet():
                storage = RDBStorage(
                    url, engine_kwargs=options, heartbeat_interval=BEAT_SECONDS, grace_period=GRACE_SECONDS
                )
            break
        except ImportError as error:
            why = error.__cause__ or error
            raise UserError(f"--storage {_shown(parsed)} needs a driver for Python: {why}; pip install it") from error
        except RuntimeError as error:  # tables of another version of Optuna
            raise UserError(f"--storage {_shown(parsed)} cannot be used: {_first_line(error)}") from error
        except (DBAPIError, optuna.exceptions.StorageInternalError) as error:
            # two processes that make the same tables at the same moment: one of them fails, and finds them then
            if not left:
                raise UserError(f"--storage {_shown(parsed)} cannot be used: {_first_line(error)}") from error
            time.sleep(random.uniform(0.02, 0.3))
    if sqlite:
        _whole_transactions(storage.engine)
    return storage


def _parsed(url: str) -> sqlalchemy.URL:
    try:
        parsed = sqlalchemy.make_url(url)
        parsed.get_dialect()
    except (ArgumentError, SQLAlchemyError) as error:
        raise UserError(f"--storage takes the address of a database, such as {_EXAMPLES}: {error}") from error
    except ImportError as error:
        raise UserError(f"--storage {_shown(parsed)} needs a driver for Python: {error}; pip install it") from error
    if parsed.get_backend_name() == "sqlite" and parsed.database in (None, "", ":memory:"):
        raise UserError(
            f"--storage {url} is a database in memory, which only one process sees: name a file, {_EXAMPLES}"
        )
    return parsed


def _whole_transactions(engine: sqlalchemy.Engine) -> None:
    """Let SQLite lock a transaction from its start.

    It has no SELECT … FOR UPDATE. Two processes would both read that a trial waits, and both take it.
    """

    def connected(connection: Any, _: Any) -> None:
        connection.isolation_level = None  # Python's sqlite3 would begin transactions itself, and too late

    def begins(connection: sqlalchemy.Connection) -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE")

    sqlalchemy.event.listen(engine, "connect", connected)
    sqlalchemy.event.listen(engine, "begin", begins)
    engine.dispose()  # connections from before do not know


@contextmanager
def quiet() -> Iterator[None]:
    """Without Optuna's messages to programmers, and its lines for every trial."""
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            warnings.filterwarnings("ignore", "Heartbeat of storage is supposed")
            yield
    finally:
        optuna.logging.set_verbosity(before)


def _shown(url: sqlalchemy.URL) -> str:
    return url.render_as_string(hide_password=True)


def _first_line(error: BaseException) -> str:
    return str(error.__cause__ or error).splitlines()[0]
