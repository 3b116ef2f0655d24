"""Embeddings of more texts than one call takes."""

import asyncio
from collections.abc import Mapping, Sequence

import msgspec
import pytest

from penstock.contract.calls import Call
from penstock.contract.errors import MalformedResponse, ModelNotFound, RateLimited
from penstock.contract.exchange import EmbeddingRequest, Usage, Vectors
from penstock.providers.batches import embed_in_batches
from penstock.providers.http.transport import WireResponse
from penstock.providers.wire.dialect import EmbeddingDialect, Options, WireCall


def encode(
    model: str, texts: Sequence[str], request: EmbeddingRequest, options: Options
) -> WireCall:
    return WireCall(f"/{model}", msgspec.json.encode(list(texts)))


def decode(body: bytes, model: str, headers: Mapping[str, str]) -> Vectors:
    texts = msgspec.json.decode(body, type=list[str])
    return Vectors(tuple((float(text),) for text in texts), "", Usage(input_tokens=len(texts)))


BY_TWO = EmbeddingDialect(encode, decode, lambda model: 2)
ONE_BY_ONE = EmbeddingDialect(
    lambda model, texts, request, options: WireCall("/old", msgspec.json.encode(list(texts))),
    decode,
    lambda model: 1,
)
WITH_FALLBACK = EmbeddingDialect(encode, decode, lambda model: 2, fallback=ONE_BY_ONE)


def asked(count: int) -> EmbeddingRequest:
    return EmbeddingRequest(texts=tuple(map(str, range(count))))


class Wire:
    """Answers with what it was sent, as slowly as the test says."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, list[str]]] = []
        self.open = 0
        self.most = 0
        self.cancelled = 0

    async def wait(self, texts: list[str]) -> None:
        await asyncio.sleep(0)

    async def send(self, call: WireCall, _made: Call) -> WireResponse:
        texts = msgspec.json.decode(call.body or b"", type=list[str])
        self.calls.append((call.path, texts))
        self.open += 1
        self.most = max(self.most, self.open)
        try:
            await self.wait(texts)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            self.open -= 1
        return WireResponse(200, {}, call.body or b"")


@pytest.mark.parametrize(
    ("count", "sizes"), [(1, [1]), (2, [2]), (3, [2, 1]), (4, [2, 2]), (5, [2, 2, 1])]
)
async def test_texts_are_split_and_the_parts_added_up(count: int, sizes: list[int]) -> None:
    wire = Wire()
    found = await embed_in_batches(BY_TWO, "m", asked(count), {}, wire.send)
    assert found == Vectors(
        tuple((float(number),) for number in range(count)),
        "m",
        Usage(input_tokens=count),
        api_calls=len(sizes),
    )
    assert [len(texts) for _, texts in wire.calls] == sizes


async def test_the_order_is_that_of_the_texts_whatever_answers_first() -> None:
    class Backwards(Wire):
        async def wait(self, texts: list[str]) -> None:
            # Each call waits for the one after it.
            if texts[0] != "14":
                await turns[int(texts[0]) + 2].wait()
            turns[int(texts[0])].set()

    turns = {number: asyncio.Event() for number in range(0, 16, 2)}
    wire = Backwards()
    found = await embed_in_batches(BY_TWO, "m", asked(16), {}, wire.send)
    assert [vector[0] for vector in found.vectors] == list(range(16))
    assert wire.most == 8


async def test_no_more_than_eight_calls_at_once() -> None:
    wire = Wire()
    found = await embed_in_batches(BY_TWO, "m", asked(101), {}, wire.send)
    assert len(found.vectors) == 101
    assert wire.most == 8


async def test_the_first_failure_ends_the_calls_that_run_and_those_that_wait() -> None:
    class Failing(Wire):
        async def wait(self, texts: list[str]) -> None:
            if texts[0] == "4":
                raise RateLimited("slow down")
            await asyncio.Event().wait()

    wire = Failing()
    with pytest.raises(RateLimited, match="slow down"):
        async with asyncio.timeout(30):
            await embed_in_batches(BY_TWO, "m", asked(40), {}, wire.send)
    for _ in range(5):
        await asyncio.sleep(0)
    assert wire.open == 0
    # One that waited may have begun in the failed one's place, and is ended too.
    assert wire.cancelled == len(wire.calls) - 1
    assert len(wire.calls) <= 9


async def test_cancelling_the_caller_ends_every_call() -> None:
    class Endless(Wire):
        async def wait(self, texts: list[str]) -> None:
            if self.open == 5:
                all_run.set()
            await asyncio.Event().wait()

    all_run = asyncio.Event()
    wire = Endless()
    task = asyncio.ensure_future(embed_in_batches(BY_TWO, "m", asked(9), {}, wire.send))
    await all_run.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    for _ in range(5):
        await asyncio.sleep(0)
    assert (wire.open, wire.cancelled) == (0, 5)


async def test_a_vector_too_few_is_malformed() -> None:
    async def send(call: WireCall, _made: Call) -> WireResponse:
        return WireResponse(200, {}, b'["1"]')

    with pytest.raises(MalformedResponse, match="1 vectors came back for 2 texts"):
        await embed_in_batches(BY_TWO, "m", asked(2), {}, send)


async def test_the_model_that_answers_is_named() -> None:
    named = EmbeddingDialect(
        encode, lambda body, model, headers: Vectors(((1.0,),), f"{model}:latest")
    )
    found = await embed_in_batches(named, "m", asked(1), {}, Wire().send)
    assert found.model == "m:latest"


class Refusing(Wire):
    """Refuses the first way."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error

    async def send(self, call: WireCall, _made: Call) -> WireResponse:
        body = await super().send(call, _made)
        if call.path != "/old":
            raise self.error
        return body


def unknown_path() -> MalformedResponse:
    return MalformedResponse("404 page not found", status=404, retryable=False)


async def test_a_server_that_does_not_know_the_path_is_asked_the_other_way() -> None:
    wire = Refusing(unknown_path())
    found = await embed_in_batches(WITH_FALLBACK, "m", asked(3), {}, wire.send)
    assert [vector[0] for vector in found.vectors] == [0, 1, 2]
    assert sorted(texts for path, texts in wire.calls if path == "/old") == [["0"], ["1"], ["2"]]


@pytest.mark.parametrize(
    "error",
    [
        ModelNotFound("no such model", status=404),
        MalformedResponse("nonsense"),
        RateLimited("slow down", status=429),
    ],
)
async def test_other_failures_do_not_lead_there(error: Exception) -> None:
    wire = Refusing(error)
    with pytest.raises(type(error), match=str(error)):
        await embed_in_batches(WITH_FALLBACK, "m", asked(1), {}, wire.send)
    assert [path for path, _ in wire.calls] == ["/m"]


async def test_without_another_way_the_error_stays() -> None:
    with pytest.raises(MalformedResponse, match="404"):
        await embed_in_batches(BY_TWO, "m", asked(1), {}, Refusing(unknown_path()).send)


async def test_what_the_other_way_says_is_what_counts() -> None:
    async def send(call: WireCall, _made: Call) -> WireResponse:
        if call.path == "/old":
            raise ModelNotFound("no such model", status=404)
        raise unknown_path()

    with pytest.raises(ModelNotFound, match="no such model"):
        await embed_in_batches(WITH_FALLBACK, "m", asked(1), {}, send)
