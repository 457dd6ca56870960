"""What is installed is what the tables and the pins say: names, versions, licences, hashes."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import re
import tomllib
from pathlib import Path
from types import ModuleType

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent
ELSEWHERE = ("nvidia-", "cuda-", "triton")
"""What a torch with CUDA brings along: the pins are those of a torch for CPUs."""
PARTLY = {"docutils"}
"""Of several licences by part: its mode for Emacs alone is under the GPL, and here it only builds the site."""
AGAIN = "run .ci/supply.py again, see docs/dependencies.md"


def loaded() -> ModuleType:
    spec = importlib.util.spec_from_file_location("supply", ROOT / ".ci/supply.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


SUPPLY = loaded()
PINS: dict[str, str] = SUPPLY.pins((ROOT / "constraints.txt").read_text())


def tables() -> dict[str, dict[str, str]]:
    """Licences by name, by the heading of each table."""
    found = {}
    for part in (ROOT / "docs/dependencies.md").read_text().split("\n## ")[1:]:
        (_, *rows) = re.findall(r"^\| ([\w.-]+) \| (.+?) \| (.+) \|$", part, re.M)
        found[part.partition("\n")[0]] = {canonicalize_name(name): kind for name, kind, _ in rows}
    return found


def installed_as_pinned() -> bool:
    return all(
        importlib.metadata.version(name).partition("+")[0] == PINS[name] for name in ("torch", "numpy", "scikit-learn")
    )


needs_the_pins = pytest.mark.skipif(not installed_as_pinned(), reason="another environment than that of the pins")


def test_every_dependency_is_in_its_table() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

    def names(*requirements: str) -> set[str]:
        return {canonicalize_name(Requirement(one).name) for one in requirements}

    always = names(*project["dependencies"])
    optional = dict(project["optional-dependencies"])
    dev = names(*optional.pop("dev"))
    extras = names(*(one for group in optional.values() for one in group)) - always
    found = tables()
    assert found["Always"].keys() == always
    assert found["Extras"].keys() == extras
    assert found["Development"].keys() == dev - extras - always


@needs_the_pins
def test_licences_are_those_of_the_packages() -> None:
    checked = 0
    for rows in tables().values():
        for name, licence in rows.items():
            try:
                stated = SUPPLY.licence(name)
            except importlib.metadata.PackageNotFoundError:
                continue  # an extra that development does not need
            assert licence == stated, f"{name}: {AGAIN}"
            free = name in PARTLY or not re.search(r"\bA?GPL", stated)
            assert free, f"{name} has a licence that asks for more than a notice"
            checked += 1
    assert checked > 100


@needs_the_pins
def test_pins_are_what_is_installed() -> None:
    found = {name: version for name, version in SUPPLY.closure().items() if not name.startswith(ELSEWHERE)}
    assert found == PINS, AGAIN
    own = tables()
    named = (
        own["Always"].keys() | own["Extras"].keys() | own["Development"].keys() | own["What those bring along"].keys()
    )
    assert named >= PINS.keys(), AGAIN


def test_the_lock_has_the_same_pins_with_hashes() -> None:
    text = (ROOT / "requirements.lock").read_text()
    assert SUPPLY.pins(text) == PINS, AGAIN
    entries = re.split(r"^(?=[\w.-]+==)", text, flags=re.M)[1:]
    assert len(entries) == len(PINS)
    for entry in entries:
        hashes = re.findall(r"--hash=sha256:([0-9a-f]{64})(?: \\)?$", entry, re.M)
        assert len(hashes) == entry.count("\n    --hash") > 0, entry
