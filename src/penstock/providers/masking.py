"""Keeps a provider's own secrets out of its errors, wherever a server repeats them.

A server may echo a header, and a proxy a whole request. What the secrets look like does not matter
here, because they are known: the provider itself sends them. Answers of the model are not touched.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator
from urllib.parse import quote

from penstock.contract.errors import InvalidRequest, PenstockError, Problem

_STARS = "***"
_LEAST = 8
"""Anything shorter is no key, and would be found in the midst of ordinary words."""
_CUT = "…"
"""What errors end a text with that they shorten."""


def mask_bytes(body: bytes, secrets: Iterable[str]) -> bytes:
    """The body without the secrets; before anything is shortened, so that no half is left."""
    for form in _forms(secrets):
        body = body.replace(form.encode(), _STARS.encode())
    return body


def mask_text(text: str, secrets: Iterable[str]) -> str:
    """The text without the secrets, and without the beginning of one where it was cut off."""
    forms = _forms(secrets)
    for form in forms:
        text = text.replace(form, _STARS)
    return _CUT.join(_without_beginning(piece, forms) for piece in text.split(_CUT))


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
            Problem(mask_text(problem.path, secrets), mask_text(problem.message, secrets))
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
    return mask_text(said, secrets) != said


def _forms(secrets: Iterable[str]) -> list[str]:
    """Each secret as it may be written, and each of its words: `Bearer key` holds two."""
    found: set[str] = set()
    for secret in secrets:
        for value in (secret, *secret.split()):
            if len(value) >= _LEAST:
                found |= {
                    value,
                    quote(value, safe=""),
                    json.dumps(value)[1:-1],
                    json.dumps(value, ensure_ascii=False)[1:-1],
                    base64.b64encode(value.encode()).decode().rstrip("="),
                }
    # The longest first, for one may be a part of another.
    return sorted(found, key=len, reverse=True)


def _without_beginning(piece: str, forms: list[str]) -> str:
    for form in forms:
        for length in range(min(len(form), len(piece)), _LEAST - 1, -1):
            if piece.endswith(form[:length]):
                return piece[:-length] + _STARS
    return piece
