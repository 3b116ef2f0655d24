"""How a reasoning level is said to each family of models; the profile's `reasoning` names the way.

| `reasoning` | models | low, med, high | none |
|---|---|---|---|
| `effort` | all that no rule knows | `outputConfig.effort` | nothing is said |
| `adaptive` | Claude 4.6 on | `outputConfig.effort`, `thinking` adaptive | `thinking` disabled |
| `budget` | Claude 3.7 to 4.5 | `thinking` enabled with a budget | nothing: off by default |
| `nova` | Nova 2 | `reasoningConfig` enabled | `reasoningConfig` disabled |
| `reasoning_effort` | gpt-oss | `reasoning_effort` | its lowest: it always thinks |

What is not a field of Converse goes into `additionalModelRequestFields`. Claude models that always
think (no `reasoning_off`) take neither kind of `thinking`: "none" asks for the least effort.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from penstock.contract.exchange import SamplingRequest
from penstock.contract.messages import JSONObject
from penstock.providers.bedrock.catalogue import LEAST_BUDGET
from penstock.providers.profiles import ModelProfile

_EFFORTS: Mapping[str, str] = {
    "none": "low",
    "low": "low",
    "med": "medium",
    "high": "high",
    "xhigh": "xhigh",
    "max": "max",
}
_BUDGETS: Mapping[str, int] = {"low": 1024, "med": 4096, "high": 16_384}


def reasoning(request: SamplingRequest, profile: ModelProfile) -> tuple[str | None, JSONObject]:
    """The effort for `outputConfig`, and the additional fields of the model."""
    level = request.reasoning_level
    # A model that cannot think satisfies "none" by itself, and may refuse the field.
    if level is None or not profile.capabilities.reasoning:
        return None, {}
    say = _WAYS[profile.options.get("reasoning", "effort")]
    return say(level, request.max_tokens, not profile.capabilities.reasoning_off)


def _effort(level: str, room: int, always: bool) -> tuple[str | None, JSONObject]:
    return (None if level == "none" else _EFFORTS[level]), {}


def _adaptive(level: str, room: int, always: bool) -> tuple[str | None, JSONObject]:
    if always:
        return _EFFORTS[level], {}
    if level == "none":
        return None, {"thinking": {"type": "disabled"}}
    return _EFFORTS[level], {"thinking": {"type": "adaptive"}}


def _budget(level: str, room: int, always: bool) -> tuple[str | None, JSONObject]:
    # The budget is a part of max_tokens and must leave some for the answer; where there is no room
    # even for the least, the model does not think.
    if level == "none" or room <= LEAST_BUDGET:
        return None, {}
    budget = max(LEAST_BUDGET, min(_BUDGETS[level], room // 2))
    return None, {"thinking": {"type": "enabled", "budget_tokens": budget}}


def _nova(level: str, room: int, always: bool) -> tuple[str | None, JSONObject]:
    if level == "none":
        return None, {"reasoningConfig": {"type": "disabled"}}
    # "high" forbids maxTokens, and a request without a limit would break every budget.
    effort = "low" if level == "low" else "medium"
    return None, {"reasoningConfig": {"type": "enabled", "maxReasoningEffort": effort}}


def _reasoning_effort(level: str, room: int, always: bool) -> tuple[str | None, JSONObject]:
    return None, {"reasoning_effort": _EFFORTS[level]}


_WAYS: Mapping[str, Callable[[str, int, bool], tuple[str | None, JSONObject]]] = {
    "effort": _effort,
    "adaptive": _adaptive,
    "budget": _budget,
    "nova": _nova,
    "reasoning_effort": _reasoning_effort,
}
