"""The table of all settings, docs/settings.md, from the code that declares them.

python -m docs.settings        # writes the page
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from pathlib import Path

from vmcr2._shared import Settings, described, shown
from vmcr2.data import DataSettings
from vmcr2.models import ModelSettings
from vmcr2.objectives import OBJECTIVES, ObjectiveSettings
from vmcr2.runs import RunSettings
from vmcr2.training import OptimSettings

PAGE = Path(__file__).parent / "settings.md"
TOP = """# All settings

Written by `python -m docs.settings` from the code. A name is what `--set NAME=VALUE`, `config.json` and
`config.replace(NAME=…)` take; in Python a setting is an attribute of its section, such as `config.optim.lr`.
«Acts with» names what a setting needs; where it cannot act it is refused. `vmcr2 recipes NAME` shows the values of a
recipe. [Tuning](tuning.md) has what they do to the figures.
"""
SECTIONS: dict[str, type[Settings]] = {
    "Data: `config.data`": DataSettings,
    "Network: `config.model`": ModelSettings,
    "Every objective: `config.objective`": ObjectiveSettings,
    **{f"{kind.title}: `config.objective`": kind for kind in OBJECTIVES.values()},
    "Optimiser: `config.optim`": OptimSettings,
    "The run: `config.run`": RunSettings,
}


def texts_of(kind: type[Settings]) -> dict[str, str]:
    """The text under each attribute of a section."""
    (declared,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    assert isinstance(declared, ast.ClassDef)
    found = {}
    for field, text in zip(declared.body, declared.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant):
            assert isinstance(field.target, ast.Name)
            found[field.target.id] = " ".join(str(text.value.value).split())
    return found


def rows(kind: type[Settings]) -> list[str]:
    """A row for each setting that the section declares itself."""
    texts, lines = texts_of(kind), []
    for name, known in kind.known().items():
        if known.attribute in texts:
            needs = "; ".join(
                [f"{other} {', '.join(map(str, values))}" for other, values in known.rule.only_with.items()]
                + [f"not with {other} {', '.join(map(str, values))}" for other, values in known.rule.idle_with.items()]
            )
            cells = [f"`{name}`", described(known.kind), f"`{shown(known.default)}`", needs, texts[known.attribute]]
            lines.append("| " + " | ".join(cells) + " |")
    return lines


def page() -> str:
    """The page."""
    parts = [TOP]
    for title, kind in SECTIONS.items():
        if found := rows(kind):
            head = "| name | takes | default | acts with | what it is |\n|---|---|---|---|---|"
            parts.append("\n".join([f"## {title}", head, *found]) + "\n")
    return "\n".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page())
    print(PAGE)
