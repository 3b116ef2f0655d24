"""Every client in front of the model that comes with the package, served by the command itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from tests.clients.running import FIRST_RUN_SECONDS, Programs
from tests.clients.table import CLIENTS, Client

TOKENS = 12
TEXTS = ["red cat", "blue", "red cat"]
pytestmark = pytest.mark.timeout(FIRST_RUN_SECONDS)


def _text(answer: Mapping[str, Any]) -> None:
    assert answer["text"]
    read, written = answer["tokens"]
    assert read > 0
    assert 0 < written <= TOKENS


def _stream(answer: Mapping[str, Any]) -> None:
    assert len(answer["texts"]) > 1
    read, written = answer["tokens"]
    assert read > 0
    assert len(answer["texts"]) <= written <= TOKENS


def _structured(answer: Mapping[str, Any]) -> None:
    value = answer["value"]
    assert value["name"] in ("Lima", "Rome")
    assert isinstance(value["people"], int)


def _embeddings(answer: Mapping[str, Any]) -> None:
    red, blue, again = answer["vectors"]
    assert len(red) == len(blue) > 100
    assert red == pytest.approx(again, abs=1e-6)
    assert red != pytest.approx(blue, abs=1e-2)


CHECKS = {
    "text": _text,
    "stream": _stream,
    "structured": _structured,
    "embeddings": _embeddings,
}


def _cells() -> Iterator[object]:
    for client in CLIENTS:
        for name in CHECKS:
            if name not in client.lacks:
                yield pytest.param(client, name, id=f"{client.name}-{name}")


@pytest.mark.parametrize(("client", "name"), list(_cells()))
async def test_embedded(client: Client, name: str, url: str, programs: Programs) -> None:
    # An object is never cut short.
    room = 200 if name == "structured" else TOKENS
    model = "embedded/wordllama" if name == "embeddings" else client.model
    answer = await programs[client.program].ask(
        name, url=url, model=model, via=client.via, max_tokens=room, fields={}, texts=TEXTS
    )
    assert "error" not in answer, answer["error"]
    CHECKS[name](answer)
