"""The headers of an answer that tell who gave it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from urllib.parse import quote

from penstock.contract.checks.lengths import cut
from penstock.contract.exchange import Metadata
from penstock.contract.metadata import nanos_to_text
from penstock.contract.ports import Attempt
from penstock.server.exchange import REQUEST_ID, Header

_MOST_ADAPTED = 32
"""The header names at most so many options; a caller may send any number of fields."""


def facts(metadata: Metadata) -> list[Header]:
    """The headers that tell who answered."""
    told = _facts(metadata.request_id, metadata.provider, metadata.model, metadata.attempts)
    told += _adapted(metadata.adapted)
    if metadata.cost_nanos is not None:
        told.append((b"x-penstock-cost-usd", nanos_to_text(metadata.cost_nanos).encode()))
    return [*told, *_known_at_the_end(metadata)]


def stream_facts(request_id: str, attempt: Attempt) -> list[Header]:
    """The same of a stream, whose metadata comes only at its end."""
    target = attempt.target
    told = _facts(request_id, target.provider, target.model, attempt.number)
    return told + _adapted(tuple(map(str, attempt.adapted)))


def stream_end_facts(metadata: Metadata) -> bytes:
    """Comments before the terminal event: what the headers of a stream could not say yet."""
    return b"".join(b": %b: %b\n\n" % header for header in _known_at_the_end(metadata))


def _known_at_the_end(metadata: Metadata) -> Iterator[Header]:
    if metadata.continued_by is not None:
        yield b"x-penstock-continued-by", header_value(metadata.continued_by)
    if metadata.stop_detail is not None:
        yield b"x-penstock-stop-detail", header_value(metadata.stop_detail)


def _facts(request_id: str, provider: str, model: str, attempts: int) -> list[Header]:
    return [
        (REQUEST_ID, request_id.encode()),
        (b"x-penstock-provider", header_value(provider)),
        (b"x-penstock-model", header_value(model)),
        (b"x-penstock-attempts", b"%d" % attempts),
    ]


def _adapted(options: Sequence[str]) -> list[Header]:
    """The options that the target did not get as they were; most answers have none."""
    if not options:
        return []
    listed = b", ".join(header_value(each) for each in options[:_MOST_ADAPTED])
    return [(b"x-penstock-adapted", listed)]


@lru_cache(maxsize=1024)
def header_value(text: str) -> bytes:
    """The text as a header may carry it; a name that a provider made up could hold anything."""
    plain = text.isascii() and text.isprintable()
    text = cut(text)
    return (text if plain else quote(text, safe=" /:@+,;=")).encode()
