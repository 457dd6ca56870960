"""What this project installs: exact versions, hashes, and known weaknesses.

python .ci/supply.py pins        prints the pins of all that pyproject.toml needs, for constraints.txt
python .ci/supply.py hashes      prints requirements.lock: the pins of constraints.txt with PyPI's hashes
python .ci/supply.py table       prints the second table of docs/dependencies.md: what the dependencies bring along
python .ci/supply.py advisories  asks PyPI for known weaknesses of the pinned versions

hashes and advisories need the network. Only the standard library and `packaging` are used.
"""

from __future__ import annotations

import importlib.metadata
import json
import re
import sys
import tomllib
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent
CONSTRAINTS = ROOT / "constraints.txt"
# CPython 3.11 and 3.12 on Linux, x86-64, and what runs everywhere
WHEEL = re.compile(
    r"-(py3|py2\.py3|cp3\d+-abi3|cp311-cp311|cp312-cp312)-.*(none-any|manylinux.*x86_64)\.whl$|-none-any\.whl$"
)
HEAD = """\
# The pins of constraints.txt with PyPI's SHA-256 hashes, for CPython 3.11 and 3.12 on Linux, x86-64.
# Written by `python .ci/supply.py hashes > requirements.lock`. To install nothing that is not listed here:
#   pip install --require-hashes --no-deps -r requirements.lock && pip install --no-deps --editable .
# torch is PyPI's, with CUDA. A torch from elsewhere has other hashes: install it first, and leave its line out.
"""


def pins(text: str) -> dict[str, str]:
    """Names and versions of a file of pins."""
    return {canonicalize_name(name): version for name, version in re.findall(r"^([\w.-]+)==([\w.+]+)", text, re.M)}


def asked_for() -> list[Requirement]:
    """What pyproject.toml asks for, for use and for development."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return [Requirement(one) for one in (*project["dependencies"], *project["optional-dependencies"]["dev"])]


def closure() -> dict[str, str]:
    """Everything installed that this project needs, with its version as a pin writes it."""
    found: dict[str, str] = {}
    asked: set[tuple[str, frozenset[str]]] = set()
    waiting = asked_for()
    while waiting:
        one = waiting.pop()
        name = canonicalize_name(one.name)
        if (name, frozenset(one.extras)) in asked:
            continue
        asked.add((name, frozenset(one.extras)))
        own = importlib.metadata.distribution(name)
        found[name] = own.version.partition("+")[0]  # of a local build: 2.13.0+cpu
        waiting.extend(_needed(own, one.extras))
    return found


def _needed(own: importlib.metadata.Distribution, extras: set[str]) -> Iterator[Requirement]:
    for text in own.requires or []:
        needed = Requirement(text)
        if needed.marker is None or any(needed.marker.evaluate({"extra": extra}) for extra in (*extras, "")):
            yield needed


def licence(name: str) -> str:
    """Of an installed package, by its metadata: an SPDX expression where it has one."""
    about = importlib.metadata.metadata(name)
    if about.get("License-Expression"):
        return str(about["License-Expression"])
    own = (about.get("License") or "").strip()
    if own and len(own) < 40:
        return own
    listed = [one.rpartition(" :: ")[2] for one in about.get_all("Classifier") or [] if one.startswith("License")]
    return ", ".join(listed) or "not stated"


def table() -> None:
    """Packages that nobody asked for by name, with the one that needs them."""
    found = closure()
    direct = {canonicalize_name(one.name) for one in asked_for()}
    users: dict[str, list[str]] = {}
    for name in found:
        for needed in _needed(importlib.metadata.distribution(name), set()):
            users.setdefault(canonicalize_name(needed.name), []).append(name)
    for name in sorted(found.keys() - direct):
        print(f"| {name} | {licence(name)} | {', '.join(sorted(users.get(name, ['an extra of another']))[:3])} |")


def project(name: str) -> dict[str, Any]:
    """What PyPI says of a project."""
    with urllib.request.urlopen(f"https://pypi.org/pypi/{name}/json", timeout=60) as answer:
        return dict(json.load(answer))


def hashes() -> None:
    """The lock file."""
    print(HEAD, end="")
    for name, version in sorted(pins(CONSTRAINTS.read_text()).items()):
        files = project(name)["releases"][version]
        kept = sorted({one["digests"]["sha256"] for one in files if WHEEL.search(one["filename"])})
        kept = kept or sorted({one["digests"]["sha256"] for one in files})  # only a source distribution
        print(f"{name}=={version}", *(f"--hash=sha256:{one}" for one in kept), sep=" \\\n    ")


def advisories() -> None:
    """PyPI lists weaknesses of a project's newest version only: of older pins it says nothing."""
    older = []
    clean = 0
    for name, version in sorted(pins(CONSTRAINTS.read_text()).items()):
        told = project(name)
        known = [one["id"] for one in told["vulnerabilities"] if not one.get("withdrawn")]
        if told["info"]["version"] != version:
            older.append(f"{name} {version} (newest {told['info']['version']}, with {len(known)} known)")
        elif known:
            print(f"{name} {version}: {', '.join(known)}")
        else:
            clean += 1
    print(f"{clean} pins are the newest version, with no known weakness")
    print(f"{len(older)} are older, so PyPI's list is not about them: {'; '.join(older)}")


if __name__ == "__main__":
    command = sys.argv[1] if len(sys.argv) == 2 else ""
    if command == "pins":
        print(*(f"{name}=={version}" for name, version in sorted(closure().items())), sep="\n")
    elif command in ("hashes", "table", "advisories"):
        {"hashes": hashes, "table": table, "advisories": advisories}[command]()
    else:
        sys.exit(__doc__)
