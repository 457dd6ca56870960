"""A trained run behind HTTP: pictures or rows in, JSON out, and a page to try it. Needs `vmcr2[serve]`."""

from ._app import create_app as create_app
from ._limits import Limits as Limits
from ._server import bound as bound, is_local as is_local, run_server as run_server
