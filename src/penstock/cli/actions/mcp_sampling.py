"""`penstock mcp sample-test`: a host that shows what a server asks of it."""

from __future__ import annotations

from typing import Any, Literal

import mcp_types
import typer
from mcp.client import ClientRequestContext

from penstock.cli.actions.mcp import client_of, live, plain, run
from penstock.cli.actions.mcp_arguments import Peer
from penstock.cli.errors import FAILED
from penstock.cli.setup.engines import open_engine
from penstock.cli.ui import terminal
from penstock.mcp.host.callback import SamplingCallback, SamplingHost
from penstock.mcp.host.options import HostOptions

Approval = Literal["always", "policy", "ask", "never"]
_LONGEST = 300


class Showing:
    """Passes requests on to the host, and shows them with their answers."""

    def __init__(self, callback: SamplingCallback, *, quiet: bool) -> None:
        """Quiet, it only keeps them."""
        self._callback = callback
        self._quiet = quiet
        self.exchanges: list[dict[str, Any]] = []

    async def __call__(
        self, context: ClientRequestContext, params: mcp_types.CreateMessageRequestParams
    ) -> Any:
        """One sampling request."""
        number = len(self.exchanges) + 1
        exchange: dict[str, Any] = {"request": plain(params)}
        self.exchanges.append(exchange)
        if not self._quiet:
            terminal.say(f"sampling request {number}: {_told(params)}")
        answer = await self._callback(context, params)
        if isinstance(answer, mcp_types.ErrorData):
            exchange["error"] = plain(answer)
            said = f"refused with {answer.code}: {answer.message}"
        else:
            exchange["answer"] = plain(answer)
            content = answer.content if isinstance(answer.content, list) else [answer.content]
            text = " ".join(_texts(content))
            said = f"{answer.model}, {answer.stop_reason}: {_cut(text)}"
        if not self._quiet:
            terminal.say(f"answer {number}: {said}")
        return answer


def test_sampling(
    peer: Peer,
    tool: str,
    arguments: dict[str, Any],
    config: str | None,
    *,
    approval: Approval,
    model: str | None,
    as_json: bool,
) -> None:
    """The whole of the command."""

    async def main() -> tuple[mcp_types.CallToolResult, list[dict[str, Any]]]:
        async with open_engine(config) as engine:
            options: HostOptions = {"approval": approval, "model": model}
            callback = SamplingHost(engine, **options).callback(peer.server)
            showing = Showing(callback, quiet=as_json)
            client = client_of(
                peer, sampling_callback=showing, sampling_capabilities=callback.capabilities
            )
            async with client:
                result = await live(client, tool, arguments, quiet=as_json)
            return result, showing.exchanges

    result, exchanges = run(main())
    if as_json:
        terminal.print_json({"sampling": exchanges, "result": plain(result)})
    else:
        terminal.say(terminal.count(len(exchanges), "sampling request"))
    if result.is_error:
        raise typer.Exit(FAILED)


def _told(params: mcp_types.CreateMessageRequestParams) -> str:
    facts = [f"at most {params.max_tokens} tokens"]
    hints = params.model_preferences.hints if params.model_preferences else None
    if hints:
        facts.append(f"hints {', '.join(hint.name or '' for hint in hints)}")
    if params.tools:
        facts.append(f"tools {', '.join(tool.name for tool in params.tools)}")
    if params.tool_choice is not None:
        facts.append(f"tool choice {params.tool_choice.mode}")
    if params.include_context not in (None, "none"):
        facts.append(f"context of {params.include_context}")
    if params.system_prompt:
        facts.append(f"system {_cut(params.system_prompt)!r}")
    last = params.messages[-1] if params.messages else None
    text = "" if last is None else " ".join(_texts(last.content_as_list))
    return f"{len(params.messages)} messages, {', '.join(facts)}: {_cut(text)}"


def _texts(blocks: Any) -> list[str]:
    return [
        block.text if isinstance(block, mcp_types.TextContent) else f"[{block.type}]"
        for block in blocks
    ]


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
