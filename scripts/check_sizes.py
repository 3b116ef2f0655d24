"""Keeps modules small and the tree free of text that belongs to one machine.

- No module in `src` is longer than LIMIT lines, except those in `size_ratchet.json`.
  A ceiling only ever falls: a module below its own fails until the entry is lowered or removed.
- No file holds the absolute path of the folder that contains this checkout, or a package registry's
  address: installs go wherever the user's own configuration says.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RATCHET = Path("scripts/size_ratchet.json")
LIMIT = 500

# Written with a gap so that this file passes its own check.
REGISTRIES = tuple(
    "".join(parts)
    for parts in (
        ("pypi", ".org/simple"),
        ("files.python", "hosted.org"),
        ("test.", "pypi.org"),
        ("registry.", "npmjs.org"),
        ("registry.", "yarnpkg.com"),
        ("deb.", "debian.org"),
        ("security.", "debian.org"),
        ("archive.", "ubuntu.com"),
        ("index.", "crates.io"),
        ("proxy.", "golang.org"),
    )
)
# A checkout straight in one of these says nothing about the machine, and files may well name them.
COMMON_FOLDERS = frozenset({"/", "/home", "/opt", "/root", "/srv", "/tmp", "/usr/src", "/var/tmp"})


def line_count(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines())


def check_sizes(root: Path, ratchet: Mapping[str, int]) -> Iterator[str]:
    """Yield one message for each module that breaks its limit or outgrew its exception."""
    sizes = {
        path.relative_to(root).as_posix(): line_count(path)
        for path in sorted((root / "src").rglob("*.py"))
    }
    for name, lines in sizes.items():
        ceiling = ratchet.get(name)
        if ceiling is None:
            if lines > LIMIT:
                yield f"{name}: {lines} lines, the limit is {LIMIT}: split it by responsibility"
        elif ceiling <= LIMIT or lines <= LIMIT:
            yield f"{name}: {lines} lines fit the limit of {LIMIT}: remove it from {RATCHET}"
        elif lines > ceiling:
            yield f"{name}: {lines} lines, its ceiling is {ceiling}: split it by responsibility"
        elif lines < ceiling:
            yield f"{name}: {lines} lines: lower its ceiling in {RATCHET} from {ceiling}"
    for name in sorted(set(ratchet) - set(sizes)):
        yield f"{name}: no such module: remove it from {RATCHET}"


def forbidden_texts(root: Path) -> re.Pattern[str]:
    """Build the pattern of everything that no file may contain."""
    folder = root.parent if str(root.parent) not in COMMON_FOLDERS else root
    return re.compile(
        "|".join(
            [
                rf"(?<![\w.~-]){re.escape(str(folder))}(?=/|\b)",
                *(re.escape(address) for address in REGISTRIES),
            ]
        )
    )


def check_texts(root: Path, names: list[str]) -> Iterator[str]:
    """Yield one message for each line that ties the tree to one machine or registry."""
    pattern = forbidden_texts(root)
    for name in names:
        path = root / name
        if not path.is_file():
            continue
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        for number, line in enumerate(text.splitlines(), start=1):
            found = pattern.search(line)
            if found:
                yield f"{name}:{number}: contains {found.group()!r}"


def repository_files(root: Path) -> list[str]:
    """List what is, or would be, committed."""
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=root,
        check=True,
        capture_output=True,
        text=True,
    )
    return sorted(set(filter(None, listing.stdout.split("\0"))))


def main() -> int:
    ratchet: dict[str, int] = json.loads((ROOT / RATCHET).read_text(encoding="utf-8"))
    problems = [*check_sizes(ROOT, ratchet), *check_texts(ROOT, repository_files(ROOT))]
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
