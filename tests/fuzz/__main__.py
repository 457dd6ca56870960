"""`PYTHONPATH=.:tests python -m fuzz [READER] [--runs N] [--quick]`: see the package's docstring."""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path

from fuzz.driver import READERS, limit_memory, long, quick, reader


def _main() -> None:
    parser = argparse.ArgumentParser(prog="fuzz")
    parser.add_argument("reader", nargs="*", help=f"of {', '.join(READERS)}; all by default")
    parser.add_argument("--runs", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="random changes, without atheris")
    parser.add_argument("--corpus", type=Path, default=Path(tempfile.gettempdir()) / "vmcr2-fuzz")
    given, options = parser.parse_known_args()
    names = given.reader or READERS
    if len(names) == 1 and not given.quick:
        long(names[0], [f"-runs={given.runs}", f"-seed={given.seed or 1}", *options], given.corpus / names[0])
        return
    for name in names:  # what they import is not what they take
        reader(name).seeds()
    limit_memory()
    print(json.dumps({name: quick(name, given.runs, given.seed) for name in names}))


_main()
