"""Answers in: the body of a reply, or the pieces of a stream, become a `Reply`.

Parts are kept as they came, because a signature belongs to the very part that it came with: text
that is signed is a part of its own, and unsigned text beside it is another.
"""

from __future__ import annotations

import re
import secrets

import msgspec

from penstock.contract.errors import ContentRejected, MalformedResponse
from penstock.contract.events import Chunk, ProviderEvent, ReasoningDelta, ToolUseDelta
from penstock.contract.exchange import Reply, Usage
from penstock.contract.messages import (
    Audio,
    Content,
    Image,
    JSONObject,
    Reasoning,
    Text,
    ToolUse,
)
from penstock.providers.gemini import mcp
from penstock.providers.gemini.contents import CONTINUATION, SIGNATURE
from penstock.providers.gemini.errors import map_inline_error
from penstock.providers.gemini.shapes import (
    Answer,
    Blob,
    Call,
    Candidate,
    ModalityCount,
    PartPiece,
    WireUsage,
)
from penstock.providers.wire.endings import check_ending, stop_detail, stop_reason
from penstock.providers.wire.error_text import listed_error
from penstock.providers.wire.json_body import read_json
from penstock.providers.wire.token_counts import has_counts, read_counts
from penstock.streaming.assemble import Assembler, check_tool_calls

_NOT_IN_IDS = re.compile(r"[^A-Za-z0-9_-]")
_SHOWN = 300

decode_answer = msgspec.json.Decoder(Answer).decode
_decode_usage = msgspec.json.Decoder(WireUsage).decode


def decode(body: bytes) -> Reply:
    """The reply in the body of a 200; raises the typed error when there is one inside."""
    if error := listed_error(body):
        raise map_inline_error(error)
    answer = read_json(decode_answer, body, "the answer is not generated content")
    if answer.error:
        raise map_inline_error(answer.error)
    collected = Collector()
    collected.learn(answer)
    candidate = first_candidate(answer)
    if candidate is None:
        raise blocked(answer) or MalformedResponse("the answer holds no candidates")
    collected.add(candidate, [])
    # The body is whole, so a server that names no reason has simply come to its end.
    return collected.reply(candidate.finish_reason)


def first_candidate(answer: Answer) -> Candidate | None:
    """The answer that was asked for; no second one ever is."""
    return next((each for each in answer.candidates or () if not each.index), None)


def blocked(answer: Answer) -> ContentRejected | None:
    """The error for a prompt that a filter took, which the API reports under a 200."""
    reason = answer.prompt_feedback and answer.prompt_feedback.block_reason
    if not reason:
        return None
    return ContentRejected(f"the provider blocked the prompt: {reason[:_SHOWN]}", status=200)


class Collector:
    """Keeps what one answer has said, whether it came whole or in pieces."""

    __slots__ = (
        "_calls",
        "_ids",
        "_message",
        "_parts",
        "_run",
        "_token",
        "model",
        "response_id",
        "usage",
    )

    def __init__(self) -> None:
        """Start empty."""
        self._parts = Assembler()
        self._run = self._parts.run
        self._ids: set[str] = set()
        self._calls = 0
        self._token: str | None = None
        self._message = ""
        self.usage = msgspec.Raw()
        self.response_id: str | None = None
        self.model: str | None = None

    @property
    def partial(self) -> str:
        """All text so far."""
        return self._parts.partial_text

    def learn(self, answer: Answer) -> None:
        """Take over what stands beside the candidates."""
        if has_counts(answer.usage_metadata):
            self.usage = answer.usage_metadata
        if self.response_id is None:
            self.response_id = answer.response_id
        if self.model is None:
            self.model = answer.model_version

    def add(self, candidate: Candidate, events: list[ProviderEvent]) -> None:
        """Take the next piece, and append the events that tell of it."""
        content = candidate.content
        if content is not None and content.parts:
            for part in content.parts:
                # Most pieces are text and nothing else.
                if part.text and not part.thought and part.thought_signature is None:
                    self._run.append(part.text)
                    events.append(Chunk(part.text))
                else:
                    self._add_part(part, events)
        if candidate.continuation_token:
            self._token = candidate.continuation_token
        if candidate.finish_message:
            self._message = candidate.finish_message

    def reply(self, reason: str | None) -> Reply:
        """The whole answer; raises the error that it ended with, such as ContentRejected."""
        check_ending(reason, partial=self.partial, said=self._message)
        content = self._parts.content()
        if any(isinstance(part, ToolUse) and not part.name for part in content):
            raise MalformedResponse("a tool call has no name")
        # Without a token, `CONTINUATION` is the limit of one request.
        paused = reason == "CONTINUATION" and self._token is not None
        return Reply(
            _marked(content, self._token) if paused else content,
            self.model or "",
            # Empty, so that an answer that never ends is not taken for one that did.
            "" if paused else stop_reason(reason, content),
            read_counts(self.usage, _decode_usage, _usage),
            self.response_id,
            reason,
            stop_detail=stop_detail(reason),
        )

    def _add_part(self, part: PartPiece, events: list[ProviderEvent]) -> None:
        signature = part.thought_signature
        meta: JSONObject | None = {SIGNATURE: signature} if signature else None
        if part.function_call is not None:
            self._add_call(part.function_call, meta, events)
        elif part.tool_call is not None or part.tool_response is not None:
            mcp.add(self._parts.settled(), part, events)
        elif part.inline_data is not None:
            if (media := _media(part.inline_data, meta)) is not None:
                self._parts.whole(media)
        elif part.thought:
            self._add_thought(part.text or "", signature, events)
        elif part.text or signature:
            self._parts.whole(Text(part.text or "", meta=meta))
            if part.text:
                events.append(Chunk(part.text))

    def _add_thought(self, text: str, signature: str | None, events: list[ProviderEvent]) -> None:
        if text:
            events.append(ReasoningDelta(text))
        if signature:
            part = Reasoning(text, signature=signature)
            self._parts.whole(part)
            events.append(ReasoningDelta("", part))
        elif text:
            self._parts.reasoning(text)

    def _add_call(self, call: Call, meta: JSONObject | None, events: list[ProviderEvent]) -> None:
        number, id = self._calls, call.id
        self._calls += 1
        check_tool_calls(self._calls)
        # Older models name no id, and two calls of one id could not be told apart.
        if not id or id in self._ids:
            id = call_id(self.response_id, number)
        self._ids.add(id)
        arguments = call.args or {}
        self._parts.whole(ToolUse(id, call.name or "", arguments, meta=meta))
        written = msgspec.json.encode(arguments).decode()
        events.append(ToolUseDelta(number, id, call.name or "", written))


def call_id(response_id: str | None, number: int) -> str:
    """An id for a call that came without one; unique over the rounds of a conversation."""
    scope = _NOT_IN_IDS.sub("", response_id or "")[-16:] or secrets.token_hex(8)
    return f"call_{scope}_{number}"


def _media(blob: Blob, meta: JSONObject | None) -> Content | None:
    if blob.mime_type.startswith("image/"):
        return Image(data=blob.data, mime_type=blob.mime_type, meta=meta)
    if blob.mime_type.startswith("audio/"):
        return Audio(blob.data, blob.mime_type, meta=meta)
    return None


def _marked(content: tuple[Content, ...], token: str | None) -> tuple[Content, ...]:
    """Hang the token on the last part, where `resume` finds it."""
    last: Content = content[-1] if content else Text("")
    marked = msgspec.structs.replace(last, meta={**(last.meta or {}), CONTINUATION: token})
    return (*content[:-1], marked)


def _usage(usage: WireUsage) -> Usage:
    return Usage(
        _sum(usage.prompt_token_count, usage.tool_use_prompt_token_count),
        _sum(usage.candidates_token_count, usage.thoughts_token_count),
        usage.cached_content_token_count,
        None,
        usage.thoughts_token_count,
        input_audio_tokens=_of(usage.prompt_tokens_details, "AUDIO"),
        output_image_tokens=_of(usage.candidates_tokens_details, "IMAGE"),
    )


def _of(counts: list[ModalityCount] | None, modality: str) -> int | None:
    return next((each.token_count for each in counts or () if each.modality == modality), None)


def _sum(first: int | None, second: int | None) -> int | None:
    if first is None:
        return second
    return first if second is None else first + second
