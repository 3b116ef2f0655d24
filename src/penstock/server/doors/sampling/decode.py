"""Requests in: MCP's params of `sampling/createMessage`, and some fields beside them.

- `model` is a model of the configuration or `provider/model`; it goes before the hints.
- `timeout` is how many seconds the whole answer may take.
- `stream` asks for events.
- `_provider`, `_timeout` (in milliseconds) and `_stream` are other names of `metadata._provider`,
  `timeout` and `stream`. `_callback` is refused.

Params without `maxTokens` are taken for 1000 tokens, as `Engine.sample` takes them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, cast

import msgspec

from penstock.contract.errors import InvalidRequest, Problem
from penstock.contract.exchange import SamplingRequest
from penstock.contract.mcp.call_options import read_call_options
from penstock.contract.mcp.content import Found, kind
from penstock.contract.mcp.sampling import DEPRECATED_MAX_TOKENS, spelled_for_mcp
from penstock.pipeline.limits import Limits
from penstock.pipeline.params import read_request
from penstock.server.doors.sampling.errors import not_json


class SamplingCall(NamedTuple):
    """What the caller wants, and how."""

    request: SamplingRequest
    stream: bool
    paths: Mapping[str, str] = {}
    """Paths of the request for which the caller has another name."""


def decode(data: bytes | str, what: str) -> object:
    """The JSON of a body or a message; raises HttpProblem with the code of a parse error."""
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError, UnicodeError) as error:
        raise not_json(error, what) from error


def read_body(limits: Limits, data: bytes) -> SamplingCall:
    """The call that this body asks for; raises HttpProblem or InvalidRequest."""
    return read_call(decode(data, "the body"), limits)


def read_call(params: object, limits: Limits) -> SamplingCall:
    """The call that these params ask for.

    Raises InvalidRequest with every problem, each with its path as MCP spells it.
    """
    if not isinstance(params, Mapping):
        raise InvalidRequest.of(
            [Problem("", f"the params are {kind(params)}; give an object with messages")]
        )
    given = cast(Mapping[str, Any], params)
    if given.get("maxTokens") is None:
        given = {**given, "maxTokens": DEPRECATED_MAX_TOKENS}
    found = Found("", given)
    model, timeout = found.text("model"), found.number("timeout")
    stream = None if given.get("stream") is None else found.flag("stream")
    options = read_call_options(
        found, timeout=timeout, stream=stream, events="set `stream` to true and read the events"
    )
    request = read_request(
        given, limits, model=model, timeout=options.timeout, problems=found.problems
    )
    request = options.applied(request)
    return SamplingCall(request, bool(options.stream), options.paths)


def in_callers_words(
    error: InvalidRequest, id_name: str, paths: Mapping[str, str]
) -> InvalidRequest:
    """The same problems with the paths that the sender knows; its id is called `id_name` here."""
    spelled = spelled_for_mcp(error, paths)
    if not any(each.path == "request_id" for each in spelled.problems):
        return spelled
    renamed = InvalidRequest.of([Problem(id_name, each.message) for each in spelled.problems])
    renamed.located(request_id=error.request_id, metadata=error.metadata)
    return renamed
