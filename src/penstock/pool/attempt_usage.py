"""What an attempt is billed for: what its provider counted, and estimates where it did not count.

| call | billed |
|---|---|
| never sent, or the provider has reported an error | nothing |
| answered | what the provider counted; what it left out or miscounted is estimated |
| sent, and neither answered nor refused | its prompt, and what was delivered of the answer |

An adapter that does not tell of its calls (`contract.calls`) is taken at how the attempt ended: one
that was left, outrun or silent for too long may have been worked on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec

from penstock.contract.calls import Call
from penstock.contract.errors import ProviderTimeout
from penstock.contract.exchange import (
    AnyRequest,
    EmbeddingRequest,
    Reply,
    SamplingRequest,
    Transcript,
    Vectors,
)
from penstock.contract.messages import Reasoning, Text, ToolUse
from penstock.contract.metadata import Usage
from penstock.pool.usage_check import Checked, are_possible_seconds, check
from penstock.tokens import (
    estimate_request,
    estimate_sound,
    estimate_text,
    family_of,
    thinking_apart,
    upper_tokens,
)
from penstock.tokens.media import seconds

_LEFT = (asyncio.CancelledError, GeneratorExit, ProviderTimeout)
"""How an attempt ends whose provider may be working still."""


def bills(calls: Sequence[Call], delivered: Sequence[str], model: str) -> list[Usage]:
    """What each of these calls took; `delivered` is what the caller has of all their answers."""
    found: list[Usage] = []
    rest: str | None = None
    """What was delivered of the calls that follow; joined for the first call without an answer."""
    answered = 0
    for call in calls:
        if call.answer is not None:
            found.append(counted(call.answer, call.request, model))
            if call is not calls[-1]:
                answered += len(_said(call.answer))
        elif call.has_it:
            rest = "".join(delivered)[answered:] if rest is None else ""
            if rest or not call.said_no:
                found.append(estimated(call.request, rest, model))
    return found


def untold(
    request: AnyRequest, delivered: Sequence[str], model: str, error: BaseException | None
) -> list[Usage]:
    """The same for an attempt without an answer whose adapter has told of no calls."""
    if delivered or isinstance(error, _LEFT):
        return [estimated(request, "".join(delivered), model)]
    return []


def counted(answer: Reply | Transcript | Vectors, request: AnyRequest, model: str) -> Usage:
    """What the provider counts, as far as it is possible.

    What it leaves out, and what is impossible, is estimated and marks the whole.
    """
    checked = check(answer.usage, request, model)
    usage = checked.usage
    read, written = usage.input_tokens, usage.output_tokens
    if not usage.implausible:
        if isinstance(answer, Transcript) and usage.audio_seconds is not None:
            return usage
        if read is not None and (written is not None or isinstance(answer, Vectors)):
            return usage
    guess = estimated(request, _said(answer), model)
    if isinstance(answer, Transcript) and are_possible_seconds(answer.duration_s, request):
        guess = msgspec.structs.replace(guess, audio_seconds=answer.duration_s)
    return msgspec.structs.replace(
        usage,
        input_tokens=max(guess.input_tokens or 0, checked.least_input) if read is None else read,
        output_tokens=_estimated_output(guess, checked) if written is None else written,
        audio_seconds=(
            guess.audio_seconds
            if read is written is None and usage.audio_seconds is None
            else usage.audio_seconds
        ),
        estimated=True,
    )


def _estimated_output(guess: Usage, checked: Checked) -> int | None:
    if guess.output_tokens is None:
        return checked.least_output or None
    return max(guess.output_tokens, checked.least_output)


def estimated(request: AnyRequest, said: str, model: str) -> Usage:
    """What a call must have taken that read all of the request and said this."""
    family = family_of(model)
    if isinstance(request, EmbeddingRequest):
        read = sum(estimate_text(text, family) for text in request.texts)
        return Usage(read, estimated=True)
    written = estimate_text(said, family)
    if isinstance(request, SamplingRequest):
        # No more than it was allowed, which is what was held for it.
        written = min(written, request.max_tokens + thinking_apart(model))
        read = min(estimate_request(request, model), upper_tokens(request, model))
        return Usage(read, written, estimated=True)
    read = estimate_sound(request.audio, family) + estimate_text(request.prompt or "", family)
    return Usage(read, written, estimated=True, audio_seconds=seconds(request.audio))


def _said(answer: Reply | Transcript | Vectors) -> str:
    """All that the model has written, thoughts and arguments included."""
    if isinstance(answer, Vectors):
        return ""
    if isinstance(answer, Transcript):
        return answer.text
    written: list[str] = []
    for part in answer.content:
        if isinstance(part, Text | Reasoning):
            written.append(part.text)
        elif isinstance(part, ToolUse):
            written.append(msgspec.json.encode(part.input).decode())
    return "".join(written)
