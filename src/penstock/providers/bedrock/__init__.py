"""Amazon Bedrock's Converse wire, signed by SigV4 or with a bearer token."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.providers.bedrock import (
    address,
    catalogue,
    count,
    credentials,
    decode,
    embeddings,
    encode,
    errors,
    models,
    stream,
)
from penstock.providers.wire.dialect import (
    CountDialect,
    Dialect,
    EmbeddingDialect,
    ModelListDialect,
)


def authorize(key: str) -> Mapping[str, str]:
    """The header that carries a bearer token; the signer uses it when there is one."""
    return credentials.bearer(key)


DIALECT = Dialect(
    name="bedrock",
    framing="eventstream",
    encode=encode.encode,
    decode=decode.decode,
    stream_decoder=stream.ConverseStreamDecoder,
    error=errors.map_error,
    models=ModelListDialect(lambda url, options: models.call(url), models.decode),
    authorize=authorize,
    catalogue=catalogue.CATALOGUE,
    embeddings=EmbeddingDialect(
        lambda model, texts, request, options: embeddings.encode(model, texts, request),
        embeddings.decode,
        embeddings.batch_limit,
    ),
    count=CountDialect(count.encode, count.decode),
    address=address.address,
    signer=credentials.signer,
)
