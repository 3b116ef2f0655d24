"""Keeps a provider's own secrets out of its errors, wherever a server repeats them.

A server may echo a header, and a proxy a whole request. What the secrets look like does not matter
here, because they are known: the provider itself sends them. They are found in any case, in the
encodings of JSON, HTML and URLs, repeated encodings included, in base64 at any offset and in
hexadecimal digits: `encodings` reduces text and secret to letters and digits, and compares those.
Answers of the model are not touched.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence

from penstock.contract.errors import InvalidRequest, PenstockError, Problem
from penstock.providers.redaction.encodings import Form, Letters, forms_of, spellings_of

_STARS = "***"
_LEAST = 8
"""Anything shorter is no key, and would be found in the midst of ordinary words."""
_LEAST_UNCUT = 12
"""So much of a secret's beginning or end is masked even where nothing shows that it was cut."""
_LONGEST_CAUSE = 4096
"""Characters of an error of another package; a longer one may hold a whole body, and is dropped."""
_MIDDLE = 18
"""Characters that each one between the found beginning and end of a secret may take."""


def mask_bytes(body: bytes, secrets: Iterable[str]) -> bytes:
    """The body without the secrets; before anything is shortened, so that no half is left."""
    text = body.decode("utf-8", "surrogateescape")
    masked = mask_text(text, secrets)
    return body if masked is text else masked.encode("utf-8", "surrogateescape")


def mask_text(text: str, secrets: Iterable[str]) -> str:
    """The text without the secrets, and without the beginning or end of one that was cut off."""
    words = _words(secrets)
    for spelling in spellings_of(words):
        text = text.replace(spelling, _STARS)
    forms = forms_of(words)
    letters = Letters(text)
    found = sorted(place for form in forms for place in _places(letters, form))
    return _without(text, found) if found else text


def mask_error(error: PenstockError, secrets: Iterable[str]) -> None:
    """Take the secrets out of the error and of everything that it is chained to."""
    known = list(secrets)
    if not known:
        return
    for each in _chain(error):
        if isinstance(each, PenstockError):
            _mask_own(each, known)
        if any(_tells(link, known) for link in (each.__cause__, each.__context__)):
            each.__cause__ = each.__context__ = None


def _mask_own(error: PenstockError, secrets: list[str]) -> None:
    error.message = mask_text(error.message, secrets)
    error.args = tuple(
        mask_text(value, secrets) if isinstance(value, str) else value for value in error.args
    )
    if isinstance(error, InvalidRequest):
        error.problems = tuple(
            Problem(
                mask_text(problem.path, secrets),
                mask_text(problem.message, secrets),
                problem.advice,
            )
            for problem in error.problems
        )


def _chain(error: BaseException) -> Iterator[BaseException]:
    waiting: list[BaseException | None] = [error]
    seen: set[int] = set()
    while waiting:
        each = waiting.pop()
        if each is not None and id(each) not in seen:
            seen.add(id(each))
            yield each
            waiting += [each.__cause__, each.__context__]


def _tells(error: BaseException | None, secrets: list[str]) -> bool:
    """Whether an error of somebody else, whose text is not ours to change, holds a secret."""
    if error is None or isinstance(error, PenstockError):
        return False
    said = f"{error} {error!r}"
    return len(said) > _LONGEST_CAUSE or mask_text(said, secrets) != said


def _words(secrets: Iterable[str]) -> tuple[str, ...]:
    """Each secret and each of its words, the longest first: `Bearer key` holds two."""
    words = {word for secret in secrets for word in (secret, *secret.split())}
    return tuple(sorted((word for word in words if len(word) >= _LEAST), key=len, reverse=True))


def _places(letters: Letters, form: Form) -> Iterator[tuple[int, int]]:
    """Where the form stands in the text: all of it, or a beginning or end that gives it away."""
    ends = sorted(_ends(letters, form))
    for at in letters.find_all(form.head):
        count = letters.common_after(at, form)
        whole = count == len(form.text)
        if whole or count >= _LEAST_UNCUT or letters.is_cut_after(at + count):
            start, end = letters.span(at, count, form.tail if whole else "")
            # What stands between a beginning and an end is the rest in an encoding of its own.
            near = bisect_left(ends, (end, 0))
            if not whole and near < len(ends) and ends[near][0] - end <= _MIDDLE * len(form.text):
                end = ends[near][1]
            yield start, end
    yield from ends


def _ends(letters: Letters, form: Form) -> Iterator[tuple[int, int]]:
    for at in letters.find_all(form.end):
        end = at + len(form.end)
        count = letters.common_before(end, form)
        start = end - count
        if count >= min(_LEAST_UNCUT, len(form.text)) or letters.is_cut_before(start):
            yield letters.span(start, count, form.tail)


def _without(text: str, found: Sequence[tuple[int, int]]) -> str:
    pieces: list[str] = []
    copied = 0
    for start, end in found:
        if start >= copied:
            pieces += [text[copied:start], _STARS]
        copied = max(copied, end)
    return "".join([*pieces, text[copied:]])
