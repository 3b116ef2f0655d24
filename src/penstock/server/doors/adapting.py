"""Whether options that a target lacks are adapted or refused, and the header that decides it.

The header `x-penstock-adapt: adapt | refuse` of a request goes before `[models.NAME] adapt`.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from penstock.contract.adaptation import AdaptMode
from penstock.contract.errors import InvalidRequest, Problem, shown
from penstock.contract.exchange import SamplingRequest
from penstock.engine.engine import Engine

HEADER = b"x-penstock-adapt"


def adapting(
    request: SamplingRequest,
    engine: Engine,
    headers: Mapping[bytes, bytes],
    wanted: object = None,
) -> SamplingRequest:
    """The request with what becomes of its advisory options; `wanted` goes before the header.

    Raises InvalidRequest for a value that is neither.
    """
    given = headers.get(HEADER)
    if wanted is not None:
        mode = adapt_mode("adapt", wanted)
    elif given is not None:
        mode = adapt_mode(HEADER.decode(), given.decode("latin-1").strip().lower())
    else:
        mode = engine.adapt_mode(request.model)
    return msgspec.structs.replace(request, adapt=mode)


def adapt_mode(name: str, value: object) -> AdaptMode:
    """One of the two; raises InvalidRequest."""
    if value == "adapt":
        return "adapt"
    if value == "refuse":
        return "refuse"
    raise InvalidRequest.of([Problem(name, f"{shown(value)} is none; give adapt or refuse")])
