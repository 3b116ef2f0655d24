"""The calls of an engine about what requests would cost, and about calls made elsewhere."""

from __future__ import annotations

import math
import secrets
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Unpack, cast, overload

from penstock.budget.accounting import Books
from penstock.budget.entries import NO_TAGS
from penstock.config.settings import Config
from penstock.contract.checks.spelling import methods_suggest_names
from penstock.contract.errors import InvalidRequest, ModelNotFound, Problem, shown
from penstock.contract.estimates import RecordedUsage, RequestEstimate
from penstock.contract.exchange import SamplingRequest
from penstock.contract.metadata import Usage
from penstock.contract.ports import Target
from penstock.contract.requests import Caller, Messages, RequestOptions
from penstock.engine.build.learning import learns
from penstock.engine.feedback import Teaching
from penstock.engine.requests import asked
from penstock.pipeline.pipeline import Pipeline
from penstock.pipeline.scope import NOBODY
from penstock.routing.forecast import Outlook
from penstock.routing.router import Ways

MOST_TOKENS = 10**12
"""Tokens of one recorded call."""
LONGEST_CALL_S = 86_400.0
_LONGEST_NAME, _MOST_TAGS = 256, 16
_LONGEST_TAG = 128
_LONGEST_PROMPT = 1_000_000
_COUNTS = (
    "input_tokens",
    "output_tokens",
    "cached_input_tokens",
    "cache_write_tokens",
    "reasoning_tokens",
    "input_audio_tokens",
    "output_image_tokens",
)


@methods_suggest_names
class Estimating(Teaching, ABC):
    """What an engine offers to those who plan what they spend, or spend it elsewhere."""

    config: Config
    _books: Books
    _pipeline: Pipeline
    _ways: Ways

    @abstractmethod
    def default_max_tokens(self, models: Sequence[str | None] = (None,)) -> int | None:
        """The limit of an answer where a call gives none."""

    @abstractmethod
    def targets(self, model: str | None = None) -> Sequence[Target]:
        """What serves this model."""

    @overload
    async def estimate(
        self, messages: SamplingRequest, *, caller: Caller | None = None
    ) -> RequestEstimate: ...
    @overload
    async def estimate(
        self, messages: Messages, *, caller: Caller | None = None, **options: Unpack[RequestOptions]
    ) -> RequestEstimate: ...
    async def estimate(
        self,
        messages: SamplingRequest | Messages,
        *,
        caller: Caller | None = None,
        **options: Any,
    ) -> RequestEstimate:
        """What a request would cost at each target, and whether the budgets have room for it.

        The arguments are those of `create_message`. No model is called and nothing is reserved, so
        another request may take the room meanwhile. Raises what `create_message` would raise for
        an invalid request, and StorageUnavailable when the budgets cannot be read.
        """
        caller = caller or NOBODY
        request = asked(messages, options, self.default_max_tokens).request
        request, ranked = await self._pipeline.allowed(request, caller)
        outlook = self._ways.outlook or Outlook()
        expected = await outlook.tokens(request, [each.target for each in ranked])
        found = await self._books.estimates(request, ranked, expected, caller)
        return RequestEstimate(request.model, tuple(found))

    async def record_usage(
        self,
        target: str,
        usage: Usage | Mapping[str, Any],
        *,
        key: str | None = None,
        tags: Mapping[str, str] = NO_TAGS,
        latency_s: float | None = None,
        quality: float | None = None,
        prompt: str = "",
        caller: Caller | None = None,
    ) -> RecordedUsage:
        """Count a call that was made without Penstock, as `provider/model` and its token counts.

        The ledger prices it and counts it against every budget that covers it, also one that it
        exceeds; the entry is of the kind `record`. Routing learns from `latency_s`, and models with
        `routing = "learned"` from `quality` (0 to 1), by the `prompt` if it is given. `caller` is
        for those who serve others, and goes before `key` and `tags`. Raises InvalidRequest with
        every problem, ModelNotFound for an unknown provider, and ConfigurationError where the
        engine keeps no ledger.
        """
        counts = usage
        if isinstance(usage, Mapping):
            known = {name: usage[name] for name in usage if name in Usage.__struct_fields__}
            counts = Usage(**known) if len(known) == len(usage) else usage
        given = {"target": target, "usage": counts, "key": key, "tags": tags, "prompt": prompt}
        problems = list(_problems({**given, "latency_s": latency_s, "quality": quality}))
        if problems or not isinstance(counts, Usage):
            raise InvalidRequest.of(problems)
        found = self._called(target)
        if caller is not None:
            key, tags = caller.key, {**tags, **caller.tags}
        request_id = f"rec_{secrets.token_hex(12)}"
        recorded = await self._books.record(request_id, found, counts, key=key, tags=tags)
        if latency_s is not None and self._ways.outlook is not None:
            self._ways.outlook.experience.add(found, counts, 1000 * latency_s)
        if quality is not None and self._learning is not None:
            models = [
                name
                for name in learns(self.config)
                if str(found) in self.config.models[name].targets
            ]
            latency_ms = None if latency_s is None else 1000 * latency_s
            await self._learning.recorded(
                models,
                recorded,
                counts,
                latency_ms=latency_ms,
                quality=float(quality),
                prompt=prompt,
                key=key,
            )
        return recorded

    def _called(self, target: str) -> Target:
        """The target in its one spelling, which has its price and its budgets."""
        found = self.targets(target)
        if target in self.config.models or len(found) != 1:
            raise ModelNotFound(
                f"{target!r} is a model of the configuration; give the target that was called, "
                "as provider/model",
                model=target,
            )
        return found[0]


def _problems(given: Mapping[str, object]) -> Iterator[Problem]:
    target, key, prompt = given["target"], given["key"], given["prompt"]
    if not (isinstance(target, str) and 0 < len(target) <= _LONGEST_NAME and "/" in target):
        yield Problem("target", f"is {shown(target)}; give the provider/model that was called")
    yield from _usage_problems(given["usage"])
    if key is not None and not (isinstance(key, str) and 0 < len(key) <= _LONGEST_NAME):
        yield Problem("key", f"is {shown(key)}; give the name of a key")
    yield from _tag_problems(given["tags"])
    for name, most, what in (
        ("latency_s", LONGEST_CALL_S, f"seconds from 0 to {LONGEST_CALL_S:g}"),
        ("quality", 1.0, "a number from 0 (useless) to 1 (perfect)"),
    ):
        number = given[name]
        if number is not None and not _is_number(number, most):
            yield Problem(name, f"is {shown(number)}; give {what}")
    if not isinstance(prompt, str) or len(prompt) > _LONGEST_PROMPT:
        yield Problem("prompt", f"give a text of at most {_LONGEST_PROMPT} characters")


def _usage_problems(usage: object) -> Iterator[Problem]:
    if isinstance(usage, Mapping):
        known = ", ".join(Usage.__struct_fields__)
        for name in cast(Mapping[object, object], usage):
            if name not in Usage.__struct_fields__:
                yield Problem(f"usage.{name}", f"there is no such count; there are: {known}")
        return
    if not isinstance(usage, Usage):
        yield Problem("usage", f"is {shown(usage)}; give a Usage, or a dict of its counts")
        return
    for name in _COUNTS:
        count: object = getattr(usage, name)
        if count is not None and not (type(count) is int and 0 <= count <= MOST_TOKENS):
            yield Problem(f"usage.{name}", f"is {shown(count)}; give 0 to {MOST_TOKENS} tokens")
    if usage.audio_seconds is not None and not _is_number(usage.audio_seconds, 10**9):
        yield Problem(
            "usage.audio_seconds", f"is {shown(usage.audio_seconds)}; give seconds from 0 on"
        )
    for name in ("estimated", "implausible"):
        if type(getattr(usage, name)) is not bool:
            yield Problem(f"usage.{name}", f"is {shown(getattr(usage, name))}; give true or false")
    if all(getattr(usage, name) is None for name in (*_COUNTS, "audio_seconds")):
        yield Problem("usage", "counts nothing; give input_tokens and output_tokens")
    yield from _parts_problems(usage)


def _parts_problems(usage: Usage) -> Iterator[Problem]:
    parts = (
        ("cached_input_tokens", "input_tokens"),
        ("cache_write_tokens", "input_tokens"),
        ("input_audio_tokens", "input_tokens"),
        ("reasoning_tokens", "output_tokens"),
        ("output_image_tokens", "output_tokens"),
    )
    for name, of in parts:
        part, whole = getattr(usage, name), getattr(usage, of)
        if type(part) is int and type(whole) is int and part > whole:
            yield Problem(f"usage.{name}", f"is {part}, and {of} is {whole}, of which it is a part")


def _tag_problems(tags: object) -> Iterator[Problem]:
    if not isinstance(tags, Mapping):
        yield Problem("tags", f"is {shown(tags)}; give names with their values")
        return
    named = cast(Mapping[object, object], tags)
    if len(named) > _MOST_TAGS:
        yield Problem("tags", f"{len(named)} given, at most {_MOST_TAGS} are allowed")
        return
    for name, value in named.items():
        for text in (name, value):
            if not (isinstance(text, str) and 0 < len(text) <= _LONGEST_TAG):
                yield Problem(
                    "tags", f"{shown(text)}: names and values are texts of 1 to {_LONGEST_TAG}"
                )


def _is_number(value: object, most: float) -> bool:
    return (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and math.isfinite(value)
        and 0 <= value <= most
    )
