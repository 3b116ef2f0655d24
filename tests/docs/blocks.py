"""Finds the fenced blocks of a Markdown page, with what is said about testing them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_MARK = re.compile(r"<!-- test: (\w+) ?([^\n]*?) -->\s*\Z")


@dataclass(frozen=True, slots=True)
class Block:
    """One fenced block."""

    page: str
    line: int
    language: str
    code: str
    mark: str = ""
    """The word after `test:` in a comment directly before the block."""
    reason: str = ""
    expected: str | None = None
    """The `text` block directly after it: what it prints."""

    @property
    def name(self) -> str:
        """Where it is, for people and for `-k`."""
        return f"{self.page}:{self.line}"


def blocks_of(path: Path, root: Path = ROOT) -> Iterator[Block]:
    """The blocks of one page, in their order."""
    text = path.read_text(encoding="utf-8")
    found = list(_FENCE.finditer(text))
    for fence, after in zip(found, [*found, None][1:], strict=True):
        follows = after is not None and not text[fence.end() : after.start()].strip()
        mark = _MARK.search(text[: fence.start()])
        yield Block(
            page=path.relative_to(root).as_posix(),
            line=text.count("\n", 0, fence.start()) + 1,
            language=fence[1],
            code=fence[2],
            mark=mark[1] if mark else "",
            reason=mark[2] if mark else "",
            expected=after[2] if after is not None and follows and after[1] == "text" else None,
        )


def all_blocks() -> list[Block]:
    """The blocks of everything that users read."""
    pages = [
        ROOT / "README.md",
        ROOT / "examples/README.md",
        *sorted((ROOT / "docs").rglob("*.md")),
    ]
    return [block for page in pages if page.is_file() for block in blocks_of(page)]


def matches(expected: str, printed: str) -> bool:
    """Whether this was printed; `...` in what is expected stands for anything."""
    pattern = ".*?".join(re.escape(part) for part in expected.strip().split("..."))
    return re.fullmatch(pattern, printed.strip(), re.DOTALL) is not None
