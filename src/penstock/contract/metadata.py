"""What there is to know about a call beside its answer: tokens, timings, attempts and cost."""

from __future__ import annotations

from typing import TypeVar, cast

from penstock.contract.messages import JSONObject
from penstock.contract.serializing import Serializable, known


class Usage(Serializable, frozen=True, omit_defaults=True):
    """Tokens as the provider counted them.

    `input_tokens` is the whole prompt, cached part included. None means that the provider did not
    say; an estimate of ours is marked by `estimated` and never mixed with a count.
    """

    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_input_tokens: int | None = None
    cache_write_tokens: int | None = None
    reasoning_tokens: int | None = None
    estimated: bool = False
    input_audio_tokens: int | None = None
    """Those of the input that stand for sound, where the provider tells them apart."""
    output_image_tokens: int | None = None
    audio_seconds: float | None = None
    """How much sound was heard, where that is what the provider counts."""
    implausible: bool = False
    """Whether the provider reported counts that are impossible, which estimates of ours replace."""

    @property
    def total_tokens(self) -> int | None:
        """Input and output together; None when neither is known."""
        return _sum(self.input_tokens, self.output_tokens)

    def to_dict(self) -> JSONObject:
        """The known counts as numbers, with `total_tokens`; a flag is there when it is set."""
        counts = {name: getattr(self, name) or None for name in ("estimated", "implausible")}
        counts |= {
            name: getattr(self, name) for name in self.__struct_fields__ if name not in counts
        }
        return known({"total_tokens": self.total_tokens, **counts})

    def __add__(self, other: Usage) -> Usage:
        """The usage of both calls; an estimate makes the sum an estimate."""
        return Usage(
            _sum(self.input_tokens, other.input_tokens),
            _sum(self.output_tokens, other.output_tokens),
            _sum(self.cached_input_tokens, other.cached_input_tokens),
            _sum(self.cache_write_tokens, other.cache_write_tokens),
            _sum(self.reasoning_tokens, other.reasoning_tokens),
            self.estimated or other.estimated,
            _sum(self.input_audio_tokens, other.input_audio_tokens),
            _sum(self.output_image_tokens, other.output_image_tokens),
            _sum(self.audio_seconds, other.audio_seconds),
            self.implausible or other.implausible,
        )


_Number = TypeVar("_Number", int, float)


def _sum(first: _Number | None, second: _Number | None) -> _Number | None:
    if first is None:
        return second
    return first if second is None else first + second


class Metadata(Serializable, frozen=True, kw_only=True, omit_defaults=True):
    """What there is to know about a call; `as_dict()` gives the stable string keys."""

    provider: str
    model: str
    request_id: str
    latency_ms: int
    first_token_ms: int | None = None
    usage: Usage = Usage()
    api_calls: int = 1
    tool_rounds: int = 0
    attempts: int = 1
    response_id: str | None = None
    response_status: str | None = None
    embedding_count: int | None = None
    embedding_dims: int | None = None
    cost_nanos: int | None = None
    dropped_options: tuple[str, ...] = ()
    adapted: tuple[str, ...] = ()
    """The options that the target did not get as they were, each as `option=what took its place`:
    a value, `omitted` or `emulated`."""
    continued_by: str | None = None
    """The target that finished the answer after the stream of another one broke."""
    stop_detail: str | None = None
    """The provider's reason for the end, if it is not documented; `missing` if it gave none."""
    max_tokens: int | None = None
    """The default limit that was used, where the call gave no `max_tokens`."""

    @property
    def cost_usd(self) -> float | None:
        """The cost for people; sums of money are kept in integer nano-dollars (`cost_nanos`)."""
        return None if self.cost_nanos is None else self.cost_nanos / 1e9

    def to_dict(self) -> JSONObject:
        """Every known fact under its stable key, numbers as numbers; what is unknown is absent.

        `cost_usd` is a float for display; `cost_nanos` is exact.
        """
        return known(
            {
                "provider": self.provider,
                "model": self.model,
                "request_id": self.request_id,
                "latency_ms": self.latency_ms,
                "first_token_ms": self.first_token_ms,
                "input_tokens": self.usage.input_tokens,
                "output_tokens": self.usage.output_tokens,
                "total_tokens": self.usage.total_tokens,
                "cached_input_tokens": self.usage.cached_input_tokens,
                "reasoning_tokens": self.usage.reasoning_tokens,
                "api_calls": self.api_calls,
                "tool_rounds": self.tool_rounds,
                "attempts": self.attempts,
                "response_id": self.response_id,
                "response_status": self.response_status,
                "embedding_count": self.embedding_count,
                "embedding_dims": self.embedding_dims,
                "cost_usd": self.cost_usd,
                "cost_nanos": self.cost_nanos,
                "dropped_options": list(self.dropped_options) or None,
                "adapted": list(self.adapted) or None,
                "continued_by": self.continued_by,
                "stop_detail": self.stop_detail,
                "max_tokens": self.max_tokens,
                "implausible_usage": self.usage.implausible or None,
            }
        )

    def as_dict(self) -> dict[str, str]:
        """The facts of `to_dict` as text, the cost as an exact decimal number of dollars."""
        facts = self.to_dict()
        if facts.pop("cost_nanos", None) is not None and self.cost_nanos is not None:
            facts["cost_usd"] = nanos_to_text(self.cost_nanos)
        return {key: _text(value) for key, value in facts.items()}


class ErrorMetadata(Serializable, frozen=True, kw_only=True, omit_defaults=True):
    """What is known of a request that failed; `usage` and `cost_nanos` are what it took so far."""

    request_id: str
    latency_ms: int
    provider: str | None = None
    """The target of the last attempt, with `model`; None when no target was asked."""
    model: str | None = None
    first_token_ms: int | None = None
    attempts: int = 0
    api_calls: int = 0
    """Calls of providers. A generator with tools makes at least one for each round."""
    tool_rounds: int = 0
    usage: Usage = Usage()
    cost_nanos: int | None = None

    @property
    def cost_usd(self) -> float | None:
        """The cost for people; sums of money are kept in integer nano-dollars (`cost_nanos`)."""
        return None if self.cost_nanos is None else self.cost_nanos / 1e9

    def to_dict(self) -> JSONObject:
        """Every known fact under the key that it has in `Metadata.to_dict`."""
        return known(
            {
                "provider": self.provider,
                "model": self.model,
                "request_id": self.request_id,
                "latency_ms": self.latency_ms,
                "first_token_ms": self.first_token_ms,
                "input_tokens": self.usage.input_tokens,
                "output_tokens": self.usage.output_tokens,
                "total_tokens": self.usage.total_tokens,
                "cached_input_tokens": self.usage.cached_input_tokens,
                "reasoning_tokens": self.usage.reasoning_tokens,
                "api_calls": self.api_calls,
                "tool_rounds": self.tool_rounds,
                "attempts": self.attempts,
                "cost_usd": self.cost_usd,
                "cost_nanos": self.cost_nanos,
            }
        )


def _text(value: object) -> str:
    if isinstance(value, list):
        return ",".join(map(str, cast(list[object], value)))
    return "true" if value is True else str(value)


def nanos_to_text(nanos: int) -> str:
    """Nano-dollars as an exact decimal number of dollars, without trailing zeros."""
    sign, nanos = ("-", -nanos) if nanos < 0 else ("", nanos)
    whole, fraction = divmod(nanos, 1_000_000_000)
    digits = f"{fraction:09d}".rstrip("0")
    return f"{sign}{whole}.{digits}" if digits else f"{sign}{whole}"
