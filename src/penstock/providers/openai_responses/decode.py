"""Answers in: the body of a response, or the events of a stream, become a `Reply`.

A stream says everything twice: in pieces, and then whole, in `response.output_item.done` and in the
response of its terminal event. The pieces are what the caller has read, so they make the reply; the
whole adds what the pieces did not bring, and what only it knows, such as encrypted thinking.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from penstock.contract.errors import ContentRejected, MalformedResponse, ProviderUnavailable
from penstock.contract.events import Finished, ProviderEvent
from penstock.contract.exchange import Reply, Usage
from penstock.contract.messages import JSONObject
from penstock.providers.openai_responses.items import Items, read_item
from penstock.providers.openai_responses.shapes import (
    Event,
    IncompleteDetails,
    OutputItem,
    Response,
    WireUsage,
)
from penstock.providers.openai_wire.errors import map_inline_error
from penstock.providers.openai_wire.usage import counted
from penstock.providers.wire.endings import check_ending, stop_detail, stop_reason
from penstock.providers.wire.extra_fields import other_fields
from penstock.providers.wire.json_body import read_json
from penstock.providers.wire.stop_reasons import meaning_of
from penstock.providers.wire.stream_reader import StreamReader, may_hold_content
from penstock.providers.wire.token_counts import read_counts
from penstock.streaming.sse import ServerSentEvent

_TERMINAL = frozenset(
    {"response.completed", "response.incomplete", "response.failed", "response.cancelled"}
)
_CONTENT_TYPES = _TERMINAL | {
    "error",
    "response.function_call_arguments.delta",
    "response.mcp_call_arguments.done",
    "response.output_item.added",
    "response.output_item.done",
    "response.output_text.delta",
    "response.reasoning_summary_text.delta",
    "response.reasoning_text.delta",
    "response.refusal.delta",
}

_RESPONSE_FIELDS = frozenset({"object", "created_at", *Response.__struct_fields__})

_decode_event = msgspec.json.Decoder(Event).decode
_decode_response = msgspec.json.Decoder(Response).decode
_decode_usage = msgspec.json.Decoder(WireUsage).decode


def decode(body: bytes) -> Reply:
    """The reply in the body of a 200; raises the typed error when there is one inside."""
    response = read_json(_decode_response, body, "the answer is not a response")
    if response.output is None and not response.error:
        raise MalformedResponse("the answer holds no output")
    items = Items()
    _add_output(items, response, [])
    return _reply(items, response)


def further(body: bytes) -> JSONObject:
    """The fields of the answer that are read nowhere here; most repeat the request."""
    return other_fields(body, _RESPONSE_FIELDS)


class ResponseStreamDecoder(StreamReader[ServerSentEvent]):
    """The stream of a response; it ends with the event that brings the response itself."""

    __slots__ = ("_items",)

    end_mark = "a terminal event"
    content = "events of a response"

    def __init__(self) -> None:
        """Expect the first event."""
        super().__init__()
        self._items = Items()

    def _read(self, frames: Sequence[ServerSentEvent], events: list[ProviderEvent]) -> None:
        add_text = self._items.add_text
        for frame in frames:
            try:
                event = _decode_event(frame.data)
            except (ValueError, RecursionError) as unread:
                if frame.event == "error":
                    raise map_inline_error(bytes(frame.data)) from unread
                if may_hold_content(frame, _CONTENT_TYPES):
                    raise self._unreadable(unread) from unread
                continue
            # Most events are one piece of text.
            if event.type == "response.output_text.delta":
                self._begun = True
                if event.delta:
                    index = event.output_index
                    add_text(event.item_id if index is None else index, event.delta, events)
                continue
            self._take(event, frame, events)
            if self._ended:
                break

    def _take(self, event: Event, frame: ServerSentEvent, events: list[ProviderEvent]) -> None:
        kind = event.type
        items, delta = self._items, event.delta or ""
        key = event.item_id if event.output_index is None else event.output_index
        if kind.startswith("response."):
            self._begun = True
        if kind in _TERMINAL:
            self._settle(event.response or Response(), kind, events)
        elif kind == "response.function_call_arguments.delta":
            items.add_arguments(key, delta, events)
        elif kind == "response.mcp_call_arguments.done":
            items.start_tool(key, event.arguments or "", events)
        elif kind == "response.reasoning_summary_text.delta":
            items.add_thought(key, delta, event.summary_index, events)
        elif kind == "response.reasoning_text.delta":
            items.add_thought(key, delta, None, events)
        elif kind == "response.refusal.delta":
            items.add_refusal(key, delta)
        elif kind == "response.output_item.added":
            if (item := self._item(event.item)) is not None:
                items.begin(item.id if key is None else key, item, events)
        elif kind == "response.output_item.done":
            if (item := self._item(event.item)) is not None:
                items.settle(item.id if key is None else key, item, events)
        elif kind == "error" or event.error or frame.event == "error":
            raise map_inline_error(event.error or bytes(frame.data))

    def _settle(self, response: Response, kind: str, events: list[ProviderEvent]) -> None:
        if response.status is None:
            response.status = kind.removeprefix("response.")
        items = self._items
        _add_output(items, response, events)
        events.append(Finished(_reply(items, response)))
        self._ended = True

    def _item(self, raw: msgspec.Raw) -> OutputItem | None:
        try:
            return read_item(raw)
        except MalformedResponse as error:
            raise self._unreadable(error) from error

    def _partial(self) -> str:
        return self._items.text


def _add_output(items: Items, response: Response, events: list[ProviderEvent]) -> None:
    for index, raw in enumerate(() if items.nameless else response.output or ()):
        item = read_item(raw)
        if item is not None:
            items.settle(index, item, events)


def _reply(items: Items, response: Response) -> Reply:
    """The whole answer; raises the typed error when it failed, was refused or was filtered."""
    status = response.status or "completed"
    if response.error:
        error = map_inline_error(response.error)
        if isinstance(error, ContentRejected):
            error.partial = items.text
        raise error
    if items.unapproved is not None:
        raise items.unapproved
    if items.refusal:
        raise ContentRejected(f"the model refused: {items.refusal[:500]}", partial=items.text)
    reason = _reason(status, response.incomplete_details)
    check_ending(reason, partial=items.text)
    content = items.content(cut=status == "incomplete")
    return Reply(
        content,
        response.model or "",
        stop_reason(reason, content),
        read_counts(response.usage, _decode_usage, _usage),
        response.id,
        status,
        stop_detail=stop_detail(reason),
    )


def _reason(status: str, details: IncompleteDetails | None) -> str:
    """Why it ended: the details say why a response is not whole, and the status whether it is."""
    given = details.reason if details else None
    meaning = meaning_of(given)
    if given and meaning == "filter":
        return given
    if status not in ("completed", "incomplete"):
        raise ProviderUnavailable(f"the provider left the response {status}")
    # Whatever the details say, an incomplete response did not end normally.
    if given and status == "incomplete" and meaning not in ("end", "stop_sequence", "none"):
        return given
    return status


def _usage(usage: WireUsage) -> Usage:
    return counted(
        usage.input_tokens,
        usage.output_tokens,
        usage.input_tokens_details,
        usage.output_tokens_details,
    )
