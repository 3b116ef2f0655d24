"""Keys in the text of an error, replaced by `[key]` before the text is shown.

The rules hold for every dialect: a gateway answers for any maker, and a caller may have mixed up
two keys. Three kinds of places are masked, in this order:

1. What follows a label: the name of a header, field or query parameter that holds a credential
   (`x-api-key: ...`, `"password": "..."`), or a scheme (`Bearer ...`). The position decides, not
   what the value looks like. A quoted value ends at its closing quote, a list at its bracket, and
   any other value at a space, quote, comma or the next label.
2. Words with a known beginning (`sk-`, `AKIA`, `eyJ`) and the credentials of an address.
3. Where the provider refused the credentials, any long word with a digit.

A value that is masked by its position is masked wherever else the text repeats it. Every step is
linear in the text: repetitions are bounded or possessive, and no part is searched twice.
"""

from __future__ import annotations

import re

from penstock.providers.redaction.labels import LABEL, LABEL_OR_VALUE, NAME

SHOWN = "[key]"
_LEAST_REPEATED = 8
MOST_REPEATED = 16

_BEGIN = r"(?: (?<![A-Za-z0-9_]) | (?<=\\[nrtbf]) | (?<=%[0-9A-Fa-f]{2}) | (?<=\\u[0-9A-Fa-f]{4}) )"
"""The beginning of a word, which may stand directly behind an escape such as `\\n` or `%22`."""
_KEY = re.compile(
    rf"""
    {_BEGIN} (?:
      sk-[\w*.+/=%~-]{{8,}}                                   # OpenAI, Anthropic, DeepSeek, ...
    | (?:pk|rk|csk|xai|nvapi|pplx|tvly|glpat|sess|xox[abeoprs])-[\w*.+/=%~-]{{12,}}
    | (?:gsk|hf|r8|fw|tgp|psk|[rs]k|gh[oprsu]|github_pat|jina)_[\w*.+/=%~-]{{12,}}
    | (?:AIza|AQ\.|ya29\.)[\w*.+/=%~-]{{8,}}                  # Google
    | (?-i: (?:AKIA|ASIA)[A-Z0-9]{{12,}} )                    # AWS; the words "Asia..." are none
    | ABSK[\w+/=%]{{12,}} | bedrock-api-key-[\w*.+/=%~-]+
    | eyJ[\w.-]{{8,}}                                        # JSON Web Tokens
    )
    """,
    re.IGNORECASE | re.VERBOSE,
)
# A password may hold a slash; a host without a port is followed by one, too.
_USER_INFO = re.compile(
    r"""(?<=://) (?: [^\s/?#@"'<>\\]{1,512} | [^\s/?#@:"'<>\\]{0,256} : [^\s@"'<>\\]{1,512} ) @""",
    re.VERBOSE,
)
# An address is no key, but a part of it may be one.
_LONG_WORD = re.compile(r"[\w*+/=.%~-]{20,}")
_LONG_PART = re.compile(r"[\w*-]{20,}")

_OPENING = re.compile(
    r"""
    [bBuUrRfF]{0,2} (?P<slashes> (?: \\ | %5C ){0,64} )
    (?P<quote> ["'`] | &quot; | &apos; | &\#(?:34|39|x22|x27); | %22 | %27 | (?<=\\) u00(?:22|27) )
    | (?P<bracket> [\[({<\u201c\u2018] )
    """,
    re.IGNORECASE | re.VERBOSE,
)
# To the next space, quote or mark between values. Escapes of other characters belong to the value.
_BARE = re.compile(
    r"""
    (?: [^\s"'`\\<>,;&)\]}|\u201c\u201d\u2018\u2019]
      | \\{1,64}/ | \\{1,64}u(?!00(?:22|27|20|0[9ad]|a0))[0-9a-f]{4}
      | & (?! quot | apos | nbsp | \#(?:34|39|32|160|x22|x27|x20) )
        (?: [a-z]{2,8} | \#x?[0-9a-f]{1,6} ) ;
    )*+
    """,
    re.IGNORECASE | re.VERBOSE,
)
_NESTING = re.compile(r"""(?P<slashes> \\{0,64}) (?P<quote> ["'`]) | [\[({] | [\])}]""", re.VERBOSE)
_CLOSING_MARK = {"<": ">", "\u201c": "\u201d", "\u2018": "\u2019"}
_SCHEME_WORD = re.compile(r"[A-Za-z][\w-]{0,30}+")
_MASKED = re.compile(r"(?: [A-Za-z][\w-]{0,30}+ [^\S\r\n]{1,8} )? \[key\]", re.VERBOSE)
_GAP = re.compile(r"[^\S\r\n]{1,8}")
_PARAMETER = re.compile(r"\s{0,8}[,;]\s{0,8}[\w.-]{1,64}\s{0,2}=\s{0,2}")
# An unescaped quote ends the line if it ends a string of JSON.
_REST_OF_LINE = re.compile(
    r"""(?: [^\r\n\\"] | \\(?![nr]) | "(?! \s{0,8} (?: [,}\]:] | \Z ) ) )*+""", re.VERBOSE
)
_LINE_BEFORE = re.compile(r"(?: [\r\n] | \\[nr] ) [\s<>*]{0,4} [\w-]{0,64} \Z", re.VERBOSE)
_TEXT_BEFORE = re.compile(r"[\s<>*]{0,4} [\w-]{0,64}", re.VERBOSE)
_NEWLINE = re.compile(r"[\r\n]|\\[nr]")
_ADDRESS = re.compile(r"https?://", re.IGNORECASE)
_WORD = re.compile(r"[A-Za-z]?[a-z]*[.:!?]*")


def without_keys(text: str, *, refused: bool = False) -> str:
    """The text with `[key]` in the place of every key; `refused` says that a key was the matter."""
    text, found = _without_labelled(text)
    for value in sorted(found, key=len, reverse=True)[:MOST_REPEATED]:
        text = text.replace(value, SHOWN)
    text = _USER_INFO.sub(f"{SHOWN}@", _KEY.sub(SHOWN, text))
    return _LONG_WORD.sub(_without_long, text) if refused else text


def is_like_a_key(value: str) -> bool:
    """Whether a masked value may be searched for in other places: no usual word is one."""
    return len(value) >= _LEAST_REPEATED and not _WORD.fullmatch(value)


def _without_long(found: re.Match[str]) -> str:
    word = found[0]
    if word.startswith("//"):
        return _LONG_PART.sub(_without_long_part, word)
    return _without_long_part(found)


def _without_long_part(found: re.Match[str]) -> str:
    return SHOWN if any(map(str.isdigit, found[0])) else found[0]


def _without_labelled(text: str) -> tuple[str, set[str]]:
    """The text with every labelled value masked, and the values that it may repeat elsewhere."""
    # Where a name stands without its value, the value may stand behind a word such as `input`.
    label = LABEL_OR_VALUE if NAME.search(text) else LABEL
    pieces: list[str] = []
    found: set[str] = set()
    copied = 0
    match = label.search(text)
    while match:
        first, names = match.start(), [match["name"] or ""]
        following = label.search(text, match.end())
        while following and following.start() == match.end():
            match = following
            names.append(match["name"] or "")
            following = label.search(text, match.end())
        limit = following.start() if following else len(text)
        place = _Place(text, limit)
        start, end = place.value(match.end(), first, names)
        if start < end:
            pieces += [text[copied:start], SHOWN]
            copied = end
            if is_like_a_key(text[start:end]):
                found.add(text[start:end])
        match = following
        if following and following.start() < end:
            match = label.search(text, end)
    return "".join([*pieces, text[copied:]]), found - {SHOWN}


class _Place:
    """Finds where the value behind a label ends."""

    __slots__ = ("_limit", "_text")

    def __init__(self, text: str, limit: int) -> None:
        """`limit` is where the next label begins; only what is quoted goes beyond it."""
        self._text = text
        self._limit = limit

    def value(self, at: int, first: int, names: list[str]) -> tuple[int, int]:
        """The first character of the value and the one behind it."""
        if masked := _MASKED.match(self._text, at):
            return masked.end(), masked.end()
        if _ADDRESS.match(self._text, at):
            # Labels and credentials inside an address are masked on their own.
            return at, at
        opening = _OPENING.match(self._text, at)
        if opening:
            return self._enclosed(opening)
        end = self._bare(at)
        name = names[0].lower()
        if name.startswith("authori") or name.endswith("cookie"):
            end = self._parameters(self._behind_scheme(at, end))
        if name and " " not in name and self._begins_line(first):
            rest = _REST_OF_LINE.match(self._text, end)
            end = rest.end() if rest else end
        return at, end

    def _enclosed(self, opening: re.Match[str]) -> tuple[int, int]:
        start = opening.end()
        if opening["quote"]:
            return start, self._closing(opening["slashes"], opening["quote"], start)
        return opening.start("bracket"), self._bare(self._bracket(opening.start("bracket")))

    def _closing(self, slashes: str, quote: str, start: int) -> int:
        """Where the quote is that closes: as often escaped as the one that has opened."""
        before = slashes.count("\\") + slashes.upper().count("%5C")
        turn = 2 * (before + 1)
        at = self._text.find(quote, start)
        while at >= 0:
            count = self._slashes_before(at, start)
            # The backslashes before a coded quote may be escaped more often than the quote.
            if count <= before if len(quote) > 1 else count % turn == before:
                return at - len(slashes)
            at = self._text.find(quote, at + 1)
        return len(self._text)

    def _slashes_before(self, at: int, start: int) -> int:
        count = 0
        while at > start:
            if self._text[at - 1] == "\\":
                at -= 1
            elif self._text[at - 3 : at].upper() == "%5C":
                at -= 3
            else:
                break
            count += 1
        return count

    def _bracket(self, at: int) -> int:
        """Where what a bracket has opened ends."""
        if closing := _CLOSING_MARK.get(self._text[at]):
            end = self._text.find(closing, at)
            return end + 1 if end >= 0 else len(self._text)
        depth, each = 0, _NESTING.search(self._text, at)
        while each:
            end = each.end()
            if each["quote"]:
                closing_at = self._closing(each["slashes"], each["quote"], end)
                end = closing_at + len(each["slashes"]) + 1
            else:
                depth += 1 if each[0] in "[({" else -1
                if depth == 0:
                    return end
            each = _NESTING.search(self._text, end)
        return len(self._text)

    def _bare(self, at: int) -> int:
        """The end of what no quote encloses, without the full stop of a sentence."""
        run = _BARE.match(self._text, at, max(self._limit, at))
        end = run.end() if run else at
        while end > at + 1 and self._text[end - 1] in ".:!?":
            end -= 1
        return end

    def _behind_scheme(self, at: int, end: int) -> int:
        """The end of the credentials, if what ends here is the scheme before them."""
        gap = _GAP.match(self._text, end)
        if not gap or gap.end() >= self._limit or not _SCHEME_WORD.fullmatch(self._text, at, end):
            return end
        return self._one(gap.end())

    def _parameters(self, end: int) -> int:
        """The end of a list such as `a="b", c=d`."""
        if self._text[end - 1] == "=":
            end = self._one(end)
        while (more := _PARAMETER.match(self._text, end)) and more.end() <= self._limit:
            end = self._one(more.end())
        return end

    def _one(self, at: int) -> int:
        opening = _OPENING.match(self._text, at)
        if opening and opening["quote"]:
            end = self._closing(opening["slashes"], opening["quote"], opening.end())
            return min(end + len(opening["slashes"]) + 1, len(self._text))
        end = self._bare(at)
        return self._one(end) if self._text[end - 1] == "=" and end > at else end

    def _begins_line(self, at: int) -> bool:
        """Whether a header stands here at the beginning of one of several lines."""
        before = self._text[max(at - 80, 0) : at]
        if _LINE_BEFORE.search(before):
            return True
        return (
            at < 80
            and _TEXT_BEFORE.fullmatch(before) is not None
            and _NEWLINE.search(self._text, at) is not None
        )
