"""What the conformance suite asks of servers that need several rounds, and of their tasks."""

from __future__ import annotations

import asyncio
from typing import Any

import mcp_types as types
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.shared.exceptions import MCPError
from pydantic import BaseModel

SUPPORT = {
    "slow_compute": "optional",
    "failing_job": "required",
    "protocol_error_job": "optional",
    "confirm_delete": "optional",
    "multi_input": "optional",
    "test_tool_with_task": "required",
}
ASKS_FIRST = ("test_tool_with_task",)


def _done(text: str) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(type="text", text=text)])


def _form(message: str, field: str, kind: str = "string") -> types.ElicitRequest:
    schema = {"type": "object", "properties": {field: {"type": kind}}, "required": [field]}
    params = types.ElicitRequestFormParams(message=message, requested_schema=schema)
    return types.ElicitRequest(params=params)


def _sample(text: str, most: int) -> types.CreateMessageRequest:
    said = types.SamplingMessage(role="user", content=types.TextContent(type="text", text=text))
    params = types.CreateMessageRequestParams(messages=[said], max_tokens=most)
    return types.CreateMessageRequest(params=params)


def _needs(
    questions: dict[str, types.InputRequest], state: str | None = None
) -> types.InputRequiredResult:
    return types.InputRequiredResult(input_requests=questions, request_state=state)


def _filled(ctx: Context, key: str, field: str) -> str | None:
    """What the user has filled in, if it is what was asked for."""
    answer = (ctx.input_responses or {}).get(key)
    if not isinstance(answer, types.ElicitResult) or answer.content is None:
        return None
    return str(answer.content.get(field))


Rounds = types.CallToolResult | types.InputRequiredResult


def add_rounds(server: MCPServer[Any]) -> None:
    """Tools and a prompt that answer with what they need first."""

    @server.tool()
    async def test_input_required_result_elicitation(ctx: Context) -> Rounds:
        """Ask for a name."""
        name = _filled(ctx, "user_name", "name")
        if name is None:
            return _needs({"user_name": _form("What is your name?", "name")})
        return _done(f"Hello, {name}!")

    @server.tool()
    async def test_streaming_elicitation(ctx: Context) -> Rounds:
        """Report progress, then ask."""
        await ctx.report_progress(1, 2)
        if _filled(ctx, "user_name", "name") is None:
            return _needs({"user_name": _form("What is your name?", "name")})
        return _done("fine")

    @server.tool()
    async def test_input_required_result_sampling(ctx: Context) -> Rounds:
        """Ask the model."""
        said = (ctx.input_responses or {}).get("capital_question")
        if not isinstance(said, types.CreateMessageResult):
            return _needs({"capital_question": _sample("What is the capital of France?", 100)})
        return _done(said.content.text if isinstance(said.content, types.TextContent) else "")

    @server.tool()
    async def test_input_required_result_list_roots(ctx: Context) -> Rounds:
        """Ask for folders."""
        said = (ctx.input_responses or {}).get("client_roots")
        if not isinstance(said, types.ListRootsResult):
            return _needs({"client_roots": types.ListRootsRequest()})
        return _done(", ".join(str(root.uri) for root in said.roots))

    @server.tool()
    async def test_input_required_result_request_state(ctx: Context) -> Rounds:
        """Keep something with the client."""
        if ctx.request_state != "confirming" or _filled(ctx, "confirm", "ok") is None:
            return _needs({"confirm": _form("Please confirm", "ok", "boolean")}, "confirming")
        return _done("state-ok")

    @server.tool()
    async def test_input_required_result_tampered_state(ctx: Context) -> Rounds:
        """The same; the server seals what the client keeps."""
        return await test_input_required_result_request_state(ctx)

    @server.tool()
    async def test_input_required_result_multiple_inputs(ctx: Context) -> Rounds:
        """Ask for everything at once."""
        questions: dict[str, types.InputRequest] = {
            "user_name": _form("What is your name?", "name"),
            "greeting": _sample("Generate a greeting", 50),
            "client_roots": types.ListRootsRequest(),
        }
        if not questions.keys() <= (ctx.input_responses or {}).keys():
            return _needs(questions, "everything")
        return _done("complete")

    @server.tool()
    async def test_input_required_result_multi_round(ctx: Context) -> Rounds:
        """Ask one thing after the other."""
        name, color = _filled(ctx, "step1", "name"), _filled(ctx, "step2", "color")
        if ctx.request_state == "step2" and color is not None:
            return _done("complete")
        if ctx.request_state == "step1" and name is not None:
            question = _form("Step 2: What is your favorite color?", "color")
            return _needs({"step2": question}, "step2")
        return _needs({"step1": _form("Step 1: What is your name?", "name")}, "step1")

    @server.tool()
    async def test_input_required_result_capabilities(ctx: Context) -> Rounds:
        """Ask for what the client can do."""
        if ctx.input_responses:
            return _done("complete")
        declared = ctx.client_capabilities or types.ClientCapabilities()
        questions: dict[str, types.InputRequest] = {}
        if declared.elicitation is not None:
            questions["user_name"] = _form("What is your name?", "name")
        if declared.sampling is not None:
            questions["greeting"] = _sample("Generate a greeting", 50)
        return _needs(questions) if questions else _done("nothing to ask")

    @server.prompt()
    async def test_input_required_result_prompt(
        ctx: Context,
    ) -> types.InputRequiredResult | str:
        """Ask for the context."""
        context = _filled(ctx, "user_context", "context")
        if context is None:
            question = _form("What context should the prompt use?", "context")
            return _needs({"user_context": question})
        return f"Use {context}."


class Confirmed(BaseModel):
    """What the user is asked for in the middle of a task."""

    confirm: bool = False


def add_task_tools(server: MCPServer[Any]) -> None:
    """Tools that may, or must, run as tasks."""

    @server.tool()
    async def greet(name: str) -> types.CallToolResult:
        """No task."""
        return _done(f"Hello, {name}!")

    @server.tool()
    async def slow_compute(seconds: float, label: str = "") -> types.CallToolResult:
        """Take a while."""
        await asyncio.sleep(seconds)
        return _done(f"{label} took {seconds:g} s")

    @server.tool()
    async def failing_job() -> types.CallToolResult:
        """Report an error."""
        raise ToolError("it failed")

    @server.tool()
    async def protocol_error_job() -> types.CallToolResult:
        """Fail as the protocol does."""
        raise MCPError(types.INTERNAL_ERROR, "it broke")

    @server.tool()
    async def confirm_delete(ctx: Context, filename: str) -> types.CallToolResult:
        """Ask in the middle of the work."""
        said = await ctx.elicit(f"Delete {filename}?", Confirmed)
        sure = said.action == "accept" and said.data.confirm
        return _done(f"{filename} {'deleted' if sure else 'kept'}")

    @server.tool()
    async def multi_input(ctx: Context) -> types.CallToolResult:
        """Ask two things at once."""
        both = await asyncio.gather(*(ctx.elicit(f"And {it}?", Confirmed) for it in "ab"))
        return _done(", ".join(each.action for each in both))

    @server.tool()
    async def test_tool_with_task(ctx: Context) -> Rounds:
        """Ask first, then be a task."""
        name = _filled(ctx, "user_name", "name")
        if name is None:
            return _needs({"user_name": _form("What is your name?", "name")})
        await ctx.report_progress(0, 1, "working")
        return _done(f"Hello, {name}!")
