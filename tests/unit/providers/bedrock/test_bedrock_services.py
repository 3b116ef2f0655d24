"""Embeddings over the wire: what only the headers tell arrives with the vectors."""

from __future__ import annotations

import msgspec

import penstock
from penstock import Config
from penstock.config.settings import ProviderConfig
from tests.support.raw import Peer, RawServer, whole


async def test_the_tokens_of_cohere_are_added_up_from_the_headers_of_all_calls() -> None:
    async def answer(peer: Peer) -> None:
        while request := await peer.request():
            texts = msgspec.json.decode(request.body)["texts"]
            body = msgspec.json.encode({"embeddings": [[float(text)] for text in texts]})
            count = f"X-Amzn-Bedrock-Input-Token-Count: {2 * len(texts)}\r\n"
            await peer.send(whole(body, headers=count))

    async with RawServer(answer) as server:
        settings = ProviderConfig.model_validate(
            {"kind": "bedrock", "url": server.url, "auth_token": "t"}
        )
        async with penstock.open(Config(providers={"aws": settings})) as engine:
            texts = [str(number) for number in range(100)]
            result = await engine.embed(texts, model="aws/cohere.embed-english-v3")
    assert len(server.requests) == 2
    assert result.vectors == tuple((float(text),) for text in texts)
    assert result.metadata.usage == penstock.Usage(input_tokens=200)
