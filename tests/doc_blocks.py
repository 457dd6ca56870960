"""The blocks of code in the documents: which there are, and the commands in them."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from textwrap import dedent
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
PAGES = sorted(
    page for place in ("*", "docs/*", "benchmarks/*", "experiments/**/*") for page in ROOT.glob(f"{place}.md")
)
_BLOCK = re.compile(
    r"^(?: *<!-- not run: (?P<why>.*?) -->\n)?(?P<indent> *)```(?P<language>\w*)\n(?P<code>.*?)^(?P=indent)```",
    re.S | re.M,
)


class Block(NamedTuple):
    """A block of code, and why no test runs it, if none does."""

    page: Path
    language: str
    code: str
    why: str | None

    @property
    def name(self) -> str:
        return f"{self.page.relative_to(ROOT)}: {self.code.splitlines()[0][:40]}"


def blocks(page: Path, *languages: str) -> list[Block]:
    """Those of a page, of these languages or of all."""
    found = [Block(page, m["language"], dedent(m["code"]), m["why"]) for m in _BLOCK.finditer(page.read_text())]
    return [block for block in found if not languages or block.language in languages]


def commands(block: Block) -> list[list[str]]:
    """The words after `vmcr2` of every line that calls it, without comments and variables before it."""
    found = []
    for line in block.code.splitlines():
        words = shlex.split(line, comments=True)
        while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
            words.pop(0)
        if words[:1] == ["vmcr2"]:
            found.append(words[1:])
    return found
