"""The tools: generate, embed, count_tokens, route and usage."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import Annotated, Any, cast

import mcp_types
import msgspec
from mcp.server.mcpserver.tools import Tool
from pydantic import Field

from penstock.contract.errors import RequestCancelled
from penstock.contract.events import Chunk, Complete, Error
from penstock.contract.exchange import Result, SamplingRequest
from penstock.contract.messages import JSONObject
from penstock.contract.options import ReasoningLevel
from penstock.contract.requests import RequestOptions, build_request
from penstock.mcp.serving.answers import (
    Answer,
    Count,
    Explanation,
    Model,
    Preferences,
    Turn,
    Usage,
    Vectors,
)
from penstock.mcp.serving.arguments import CheckedTool, check_schema
from penstock.mcp.serving.visits import Visit, at_a_tool
from penstock.mcp.streaming.chunks import Final
from penstock.mcp.streaming.tools import streamed

READS = mcp_types.ToolAnnotations(read_only_hint=True, open_world_hint=False)
ASKS = mcp_types.ToolAnnotations(read_only_hint=True, open_world_hint=True)
_NO_ANSWER = 65_536
"""The limit where nothing is answered."""
_ROUTED = 1000
"""The limit of an answer whose route is asked for."""


def whole(pieces: list[Any]) -> Annotated[mcp_types.CallToolResult, Answer]:
    """The result of a call whose pieces these are."""
    answer = Answer.of(cast(Result, pieces[-1]))
    return mcp_types.CallToolResult(
        content=[mcp_types.TextContent(type="text", text=answer.text)],
        structured_content=answer.model_dump(mode="json"),
    )


async def generate(
    prompt: Annotated[str, Field(description="What to answer.")],
    *,
    model: Model = None,
    max_tokens: Annotated[
        int | None, Field(ge=1, description="The longest answer, in tokens.")
    ] = None,
    system_prompt: Annotated[str | None, Field(description="Instructions that come first.")] = None,
    messages: Annotated[list[Turn], Field(description="The conversation before the prompt.")] = [],  # noqa: B006
    temperature: float | None = None,
    stop_sequences: list[str] = [],  # noqa: B006
    preferences: Preferences | None = None,
    reasoning_level: ReasoningLevel | None = None,
    output_schema: Annotated[
        dict[str, Any] | None, Field(description="A JSON Schema that the answer must fit.")
    ] = None,
) -> AsyncGenerator[str | Final[Result], None]:
    """Have a language model answer a prompt; the gateway chooses who, and fails over."""
    with at_a_tool() as visit:
        await check_schema("output_schema", output_schema)
        request = _request(
            visit,
            prompt,
            messages,
            model=model,
            max_tokens=max_tokens if max_tokens is not None else visit.room(model),
            system_prompt=system_prompt,
            temperature=temperature,
            stop_sequences=stop_sequences,
            model_preferences=None if preferences is None else preferences.ours(),
            reasoning_level=reasoning_level,
            output_schema=output_schema,
        )
        adapt = visit.engine.adapt_mode(model)
        request = msgspec.structs.replace(request, adapt=adapt)
        handle = await visit.engine.create_message_stream(request, caller=visit.caller)
        async with handle:
            async for event in handle:
                if isinstance(event, Chunk):
                    if event.text:
                        yield event.text
                elif isinstance(event, Complete):
                    yield Final(event.result)
                    return
                elif isinstance(event, Error):
                    raise event.error
        raise RequestCancelled("the request was cancelled", request_id=handle.request_id)


async def embed(
    texts: Annotated[list[str], Field(min_length=1, description="What to make vectors of.")],
    model: Model = None,
    dimensions: Annotated[int | None, Field(ge=1)] = None,
) -> Annotated[mcp_types.CallToolResult, Vectors]:
    """Make a vector of each text, for search and comparison."""
    with at_a_tool() as visit:
        result = await visit.engine.embed(
            texts, model=model, dimensions=dimensions, caller=visit.caller
        )
    vectors = Vectors.of(result)
    # In words only how many there are, for nobody reads a thousand numbers.
    told = f"{len(vectors.vectors)} vectors of {vectors.dimensions} numbers by {vectors.model}"
    return mcp_types.CallToolResult(
        content=[mcp_types.TextContent(type="text", text=told)],
        structured_content=vectors.model_dump(mode="json"),
    )


async def count_tokens(
    prompt: str,
    model: Model = None,
    system_prompt: str | None = None,
    messages: Annotated[list[Turn], Field(description="The conversation before the prompt.")] = [],  # noqa: B006
) -> Count:
    """Count the tokens that a model would read for a prompt; nothing is answered."""
    with at_a_tool() as visit:
        visit.require(model)
        request = _request(
            visit, prompt, messages, model=model, system_prompt=system_prompt, max_tokens=_NO_ANSWER
        )
        return Count.of(await visit.engine.count_tokens(request))


async def route(
    prompt: str, model: Model = None, preferences: Preferences | None = None
) -> Explanation:
    """Explain which providers and models would be asked for a prompt, in which order, and why."""
    with at_a_tool() as visit:
        visit.require(model)
        request = _request(
            visit,
            prompt,
            (),
            model=model,
            max_tokens=_ROUTED,
            model_preferences=None if preferences is None else preferences.ours(),
        )
        decision = await visit.engine.route(request, caller=visit.caller)
        return Explanation.of(decision, await visit.own_budgets())


async def usage() -> Usage:
    """Tell what was used and what it cost: by your key, or by everybody where no key is asked."""
    with at_a_tool() as visit:
        return Usage.model_validate(await visit.usage())


def _request(
    visit: Visit, prompt: str, messages: Sequence[Turn], **options: Any
) -> SamplingRequest:
    turns: list[JSONObject] = [turn.model_dump() for turn in messages]
    known = {name: value for name, value in options.items() if value not in (None, [])}
    return build_request([*turns, {"role": "user", "content": prompt}], cast(RequestOptions, known))


def make_tools() -> list[Tool]:
    """All tools of the server."""
    return [
        CheckedTool.of(streamed(collect=whole)(generate), ASKS),
        CheckedTool.of(embed, ASKS),
        CheckedTool.of(count_tokens, ASKS),
        CheckedTool.of(route, READS),
        CheckedTool.of(usage, READS),
    ]
