"""The line at which a key is set, as far as the text shows it."""

import pytest

from penstock.config.lines import Lines

TEXT = """\
# a comment
[server]
port = 1  # [models]

[providers.openai]
kind = "x"
headers = { a = "1", b = "2" }
[ providers . "my.local" ]
url = "u"
"quoted key" = 1
'single' = 2

[models."a]b"]   # a comment
targets = [
    "a/b",
    "c/d",
]
pool.retries = 2
[[list]]
a . "b" = 1
"""


@pytest.mark.parametrize(
    ("path", "line"),
    [
        (("server",), 2),
        (("server", "port"), 3),
        (("server", "nothing"), 2),
        (("providers", "openai"), 5),
        (("providers", "openai", "kind"), 6),
        (("providers", "openai", "headers", "b"), 7),
        (("providers", "my.local"), 8),
        (("providers", "my.local", "url"), 9),
        (("providers", "my.local", "quoted key"), 10),
        (("providers", "my.local", "single"), 11),
        (("models", "a]b"), 13),
        (("models", "a]b", "targets", 1), 14),
        (("models", "a]b", "pool", "retries"), 18),
        (("list", 0, "x"), 19),
        (("nowhere",), None),
        ((), None),
    ],
)
def test_the_deepest_part_of_the_path_that_the_text_holds(
    path: tuple[str | int, ...], line: int | None
) -> None:
    assert Lines(TEXT).line_of(path) == line


def test_only_line_feeds_end_a_line() -> None:
    assert Lines("# a\u2028b\x0cc\x85d\n[server]\nport = 1\n").line_of(("server", "port")) == 3
