"""Workers that share a search: who does what, whoever dies and whenever. Here all are in one process."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from vmcr2.runs import Config, UserError, recipe
from vmcr2.sweep import Point, Range
from vmcr2.sweep._space import Space

optuna = pytest.importorskip("optuna")

from vmcr2.sweep import _database  # noqa: E402
from vmcr2.sweep._slots import MOST_DEATHS, VOID, slots  # noqa: E402
from vmcr2.sweep._study import Claim, Study  # noqa: E402

SPEC = {"space": {"lr": "0.01:1:log"}}
BASE = recipe("digits", epochs=2, holdout=100)
LR = Space(BASE, {"lr": Range(0.01, 1, True)})


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/search.db"


def take(study: Study, space: Space = LR) -> Claim:
    claim = study.claim(space.draw)
    assert claim is not None
    return claim


def finish(study: Study, claim: Claim, value: float = 0.5) -> bool:
    return study.finish(claim, {"id": claim.point.id}, value)


def kill(study: Study) -> None:
    """What remains of a killed worker: its trials, and no more beats."""
    study._ended.set()
    study._pulse.join()


def an_hour_passes(study: Study) -> None:
    with study._storage.engine.begin() as connection:
        connection.exec_driver_sql("UPDATE trial_heartbeats SET heartbeat = datetime(heartbeat, '-1 hour')")


def all_trials(study: Study) -> list[Any]:
    return list(study._study.get_trials())


@pytest.fixture
def two(url: str) -> Iterator[tuple[Study, Study]]:
    with Study(url, "s", SPEC, 6) as one, Study(url, "s", SPEC, 6) as other:
        yield one, other


def test_workers_share_the_trials_and_do_none_twice(two: tuple[Study, Study]) -> None:
    one, other = two
    claims = [take(worker) for _ in range(3) for worker in (one, other)]
    assert len({claim.point.id for claim in claims}) == 6
    assert one.claim(LR.draw) is None
    assert (one.done, one.at_work()) == (0, 6)
    for claim, worker in zip(claims, [one, other] * 3, strict=True):
        assert finish(worker, claim)
    assert (one.done, other.at_work()) == (6, 0)
    assert other.claim(LR.draw) is None
    assert len(all_trials(one)) == 6


@pytest.mark.parametrize("given_back", [False, True])
def test_at_the_same_moment_too(given_back: bool, url: str) -> None:
    """Four workers at once: on a new database, and where trials wait. SQLite alone would let several take one."""
    if given_back:
        with Study(url, "s", SPEC, 12) as study:
            while study.claim(LR.draw) is not None:
                pass
        assert (study.done, study.at_work()) == (0, 12)
    start, made, errors = threading.Barrier(4), list[Claim](), list[BaseException]()

    def work() -> None:
        try:
            start.wait()
            with Study(url, "s", SPEC, 12) as study:
                while (claim := study.claim(LR.draw)) is not None:
                    made.append(claim)
                    assert finish(study, claim)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert len(made) == 12
    assert len({claim.point.id for claim in made}) == 12


def test_what_a_worker_gives_back_another_one_does(two: tuple[Study, Study], url: str) -> None:
    one, _ = two
    with Study(url, "s", SPEC, 6) as leaving:
        left = take(leaving)
    again = take(one)
    assert again.point.id == left.point.id
    assert finish(one, again)
    for _ in range(5):
        finish(one, take(one))
    assert one.claim(LR.draw) is None
    assert one.done == 6


def test_the_trial_of_a_dead_worker_is_done_again_and_its_late_result_does_not_count(url: str) -> None:
    dead = Study(url, "s", SPEC, 1).__enter__()
    claim = take(dead)
    with Study(url, "s", SPEC, 1) as other:
        assert other.claim(LR.draw) is None, "it lives"
        kill(dead)
        assert not other.claimable(), "not yet"
        an_hour_passes(other)
        again = take(other)
        assert (again.point.id, again.number) == (claim.point.id, claim.number + 1)
        assert not finish(dead, claim), "it was slow, not dead; but another one is at it now"
        assert other.done == 0
        assert finish(other, again)
        assert other.done == 1


def test_a_worker_that_lives_keeps_its_trial(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_database, "BEAT_SECONDS", 0.05)
    with Study(url, "s", SPEC, 1) as one, Study(url, "s", SPEC, 1) as other:
        mine = take(one)
        an_hour_passes(one)
        deadline = time.monotonic() + 60
        while one._storage._get_stale_trial_ids(one._study_id) and time.monotonic() < deadline:
            time.sleep(0.05)  # until it beats again
        assert not other.claimable()
        assert finish(one, mine)


def test_a_computer_that_slept_does_not_take_its_own_trials_for_dead(url: str) -> None:
    with Study(url, "s", SPEC, 2) as study:
        mine = take(study)
        an_hour_passes(study)
        assert take(study).point.id != mine.point.id
        assert finish(study, mine)


def test_one_that_died_before_its_first_beat_is_found_out(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with Study(url, "s", SPEC, 1) as other:
        with _database.quiet():
            other._study.ask()
        an_hour_passes(other)
        assert not other.claimable(), "nobody knows yet whether it lives"
        monkeypatch.setattr(_database, "GRACE_SECONDS", -1)  # as if it had been silent for longer than that
        other.claimable()
        an_hour_passes(other)
        assert finish(other, take(other))


def test_a_trial_that_kills_its_workers_is_given_up_and_taken_up_by_the_next_command(url: str) -> None:
    with Study(url, "s", SPEC, 1) as study:
        first = take(study)
        study.lose(first, "worker ended (signal 9)", died=True)
        for _ in range(MOST_DEATHS - 1):
            again = take(study)
            assert again.point.id == first.point.id
            study.lose(again, "worker ended (signal 9)", died=True)
        assert study.claim(LR.draw) is None
        ((_, record, why),) = study.results()
        assert (record, why) == (None, "3 workers died at it")
        study.try_lost_again()
        assert finish(study, take(study))
        assert study.done == 1


def test_an_error_of_the_run_is_not_tried_again_by_itself(url: str) -> None:
    with Study(url, "s", SPEC, 2) as study:
        study.lose(take(study), "it does not fit", died=False)
        finish(study, take(study))
        assert study.claim(LR.draw) is None
        assert [why for _, _, why in study.results()] == ["it does not fit", None]


def test_of_two_workers_that_retry_one_trial_the_first_does(two: tuple[Study, Study]) -> None:
    one, other = two
    one.lose(take(one), "died", died=True)
    (slot,) = one.slots()
    one._another_attempt(slot, 1)
    other._another_attempt(slot, 1)
    claims = [take(worker) for worker in (one, other)]
    assert claims[0].point.id != claims[1].point.id
    assert sum(VOID in trial.user_attrs for trial in all_trials(one)) == 1
    assert len(one.slots()) == 2


def test_a_small_space_is_tried_once_and_then_the_search_ends(url: str) -> None:
    space = Space(BASE, {"objective": ["vmcr2", "mcr2"], "atoms_per_class": [3, 5]})
    found = []
    with Study(url, "s", SPEC, 12) as study:
        while (claim := study.claim(space.draw)) is not None:
            found.append(claim.point.label)
            finish(study, claim)
        assert study.exhausted
        assert not study.claimable()
    assert sorted(found) == [
        "objective=mcr2 seed=0",
        "objective=vmcr2 atoms_per_class=3 seed=0",
        "objective=vmcr2 atoms_per_class=5 seed=0",
    ]


def test_values_that_never_fit_end_the_search_with_the_reason(url: str) -> None:
    def never(trial: Any) -> Point:
        raise UserError("components must be at most dim 3")

    with Study(url, "s", SPEC, 2) as study, pytest.raises(UserError, match="at most dim 3"):
        study.claim(never)


def test_a_run_whose_trial_another_worker_has_ends(url: str) -> None:
    from vmcr2.sweep._trials import Pruning, TrialRunner

    with Study(url, "s", SPEC, 1) as study:
        claim = take(study)
        pruning = Pruning(TrialRunner(url, "s", True)._trial(claim.number), claim.point.config)
        assert not pruning.epoch({"epoch": 1, "holdout_accuracy": 0.5})
        study.lose(claim, "it was silent", died=True)
        with pytest.raises(UserError, match="another one has taken the trial over"):
            pruning.epoch({"epoch": 2, "holdout_accuracy": 0.5})


def test_more_trials_later(url: str) -> None:
    for most in (2, 5):
        with Study(url, "s", SPEC, most) as study:
            while (claim := study.claim(LR.draw)) is not None:
                finish(study, claim)
            assert study.done == most
    assert len(all_trials(study)) == 5


def test_a_search_can_be_repeated(tmp_path: Path) -> None:
    drawn = []
    for name in ("a", "b"):
        with Study(f"sqlite:///{tmp_path}/{name}.db", "s", SPEC, 14) as study:
            values = []
            while (claim := study.claim(LR.draw)) is not None:
                values.append(claim.point.settings["lr"])
                finish(study, claim, 1 - abs(values[-1] - 0.3))
            drawn.append(values)
    assert drawn[0] == drawn[1]
    assert len(set(drawn[0])) == 14


def test_another_search_in_the_database_is_said(url: str) -> None:
    with Study(url, "s", SPEC, 2):
        pass
    with pytest.raises(UserError, match=r"searches something else: lr is 0.01:1:log there and 0.01:2:log here"):
        Study(url, "s", {"space": {"lr": "0.01:2:log"}}, 2)
    optuna.create_study(storage=url, study_name="mine").ask()
    with pytest.raises(UserError, match="'mine' in this database is not of vmcr2"):
        Study(url, "mine", SPEC, 2)
    Study(url, "other", {"space": {"lr": "0.01:2:log"}}, 2)


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        ("nonsense", "--storage takes the address of a database, such as sqlite:////"),
        ("nosuch://host/name", "--storage takes the address of a database"),
        ("sqlite://", "a database in memory"),
        ("sqlite:////no/such/folder/x.db", "cannot be used: .*unable to open database file"),
        ("oracle://user:secret@host/name", r"oracle://user:\*\*\*@host/name needs a driver"),
    ],
)
def test_a_wrong_address_is_said(bad: str, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_database.time, "sleep", lambda _: None)
    with pytest.raises(UserError, match=words):
        _database.open_database(bad)


def test_a_file_that_is_no_database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_database.time, "sleep", lambda _: None)
    (tmp_path / "x.db").write_text("my notes, which are much longer than a few bytes\n" * 50)
    with pytest.raises(UserError, match="file is not a database"):
        _database.open_database(f"sqlite:///{tmp_path}/x.db")


def test_slots_ignore_what_is_too_many() -> None:
    """A worker that died after it had drawn one trial too many: the plan has its number of slots all the same."""
    waiting = optuna.trial.TrialState.WAITING
    trials = [optuna.create_trial(state=waiting, user_attrs={}) for _ in range(3)]
    for number, trial in enumerate(trials):
        trial.number = number
    assert [slot.root for slot in slots(trials, 2)] == [0, 1]


def test_the_configurations_of_a_study_are_whole(url: str) -> None:
    with Study(url, "s", SPEC, 1) as study:
        claim = take(study)
    assert isinstance(claim.point.config, Config)
    assert claim.point.config.acting() == BASE.replace(lr=claim.point.settings["lr"]).acting()
