"""Params of MCP's `sampling/createMessage` to a request, with all problems in one error."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from penstock.contract.errors import InvalidRequest, Problem, ProblemList
from penstock.contract.exchange import SamplingRequest
from penstock.contract.mcp.sampling import MCPParams, decode_params, mcp_path, read_fields
from penstock.pipeline.limits import Limits
from penstock.pipeline.validate import validate


def read_request(
    params: MCPParams,
    limits: Limits,
    *,
    model: str | None = None,
    timeout: float | None = None,
    problems: Iterable[Problem] = (),
) -> SamplingRequest:
    """The request of these params, not yet validated if all of them can be read.

    Raises InvalidRequest with every problem: the given ones, those of shape, and, where there are
    any, those that `validate` finds in the rest.
    """
    fields, found = read_fields(decode_params(params))
    for each in problems:
        found.append(each)
    if not found:
        return SamplingRequest(**fields, model=model, timeout=timeout)
    if fields["max_tokens"] is None:
        fields["max_tokens"] = 1
    request = SamplingRequest(**fields, model=model, timeout=timeout)
    for each in _of_the_rest(request, limits, found):
        found.append(each)
    raise InvalidRequest.of(found)


def _of_the_rest(request: SamplingRequest, limits: Limits, found: ProblemList) -> Iterator[Problem]:
    broken = {_part(each.path) for each in found}
    # `_timeout` is the older name of the same limit.
    broken |= {each.removeprefix("_") for each in broken & {"_timeout"}}
    # An item that cannot be read is not there, so the numbers of the others are not known here.
    shifted = {_list(each.path) for each in found if each.path.endswith("]")}
    some_messages = any(_list(each) == "messages" for each in broken)
    try:
        validate(request, limits)
    except InvalidRequest as error:
        for each in error.problems:
            path = mcp_path(each.path)
            part = _part(path)
            # What a message has lost by its fault may be what another one needs.
            balance = some_messages and path == part and _list(path) == "messages"
            if part not in broken and _list(path) not in shifted and not balance:
                yield msgspec.structs.replace(each, path=path)


def _part(path: str) -> str:
    """The field of a path, with the number of its item."""
    first, _, rest = path.partition(".")
    return first if "[" in first or not rest else f"{first}.{rest.partition('.')[0]}"


def _list(path: str) -> str:
    return path.partition("[")[0]
