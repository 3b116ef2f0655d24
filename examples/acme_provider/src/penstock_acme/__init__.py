"""The kind `acme`: a provider with a wire format of its own.

The entry point of this package names `KIND`. Everything else is pure functions: Penstock sends the
bytes, and adds retries, failover, budgets, streaming and cancellation.
"""

from __future__ import annotations

import penstock
from penstock.plugins import (
    Catalogue,
    Dialect,
    ModelListDialect,
    ProviderKind,
    WireCall,
    bearer,
    error_of_response,
)
from penstock_acme import decode, encode

DIALECT = Dialect(
    name="acme",
    framing="ndjson",  # how a stream is cut into frames: ndjson, sse or eventstream
    encode=encode.encode,
    decode=lambda body, headers: decode.decode(body),
    stream_decoder=lambda headers: decode.AcmeStream(),
    error=error_of_response,
    models=ModelListDialect(
        lambda url, options: WireCall("/engines", method="GET"), decode.decode_models
    ),
    authorize=bearer,
    # What the models can do. What they cannot is refused by name before a call is made.
    catalogue=Catalogue(
        penstock.Capabilities(
            images=False, tools=False, output_schema=False, reasoning=False, stop_sequences=False
        )
    ),
)

KIND = ProviderKind(
    "acme",
    "Acme Talk",
    dialect=DIALECT,
    url="https://api.acme.example",
    key_variables=("ACME_API_KEY",),
    model="parrot",
)
