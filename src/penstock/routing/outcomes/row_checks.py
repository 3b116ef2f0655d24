"""What a row of a file must have to be learnt from; everything else in it is not looked at."""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from penstock.contract.errors import InvalidRequest, Problem, shown
from penstock.contract.ports import Target
from penstock.routing.learning.features import MOST_CHARACTERS, SIZE, shortened
from penstock.routing.outcomes.formats import Row
from penstock.routing.outcomes.outcome import Quality, Source
from penstock.routing.outcomes.rows import NANOS, is_sound, packed, unpacked
from penstock.tokens.estimate import estimate_text

_SOURCES = ", ".join(each.value for each in Source)
_DEAREST_USD = 1e6


class Features(Protocol):
    """Makes the features of a text: a `FeatureMaker`."""

    @property
    def name(self) -> str:
        """What distinguishes these features from others."""
        ...

    def vector(
        self, text: str, embedding: Sequence[float] | NDArray[np.float32] | None = None
    ) -> NDArray[np.float32]:
        """The features, with this embedding of the text if there is one."""
        ...


class Prompt(NamedTuple):
    """What is known of a prompt."""

    tokens: int
    made_by: str
    """Who makes its features."""
    features: bytes | None
    """None when they are made later, of the text."""
    text: str
    """As much of it as features are made of."""


class Checked(NamedTuple):
    """What an outcome's row says."""

    target: Target
    models: Sequence[str]
    """The models of the configuration that have this target."""
    quality: Quality
    cost_nanos: int | None


class Checker:
    """Raises InvalidRequest, with the column, for what cannot be learnt from."""

    def __init__(
        self, models: Mapping[str, Sequence[Target]], features: Features, *, later: bool = False
    ) -> None:
        """The models that learn, and what makes features: at once, or `later`."""
        self._features = features
        self._later = later
        if not later:
            # Its name is another one when the embedder turns out to be missing.
            features.vector("")
        self._models: dict[Target, list[str]] = {}
        for name, targets in models.items():
            for target in dict.fromkeys(targets):
                self._models.setdefault(target, []).append(name)
        self._names: dict[str, list[Target]] = {}
        for target in self._models:
            self._names.setdefault(target.model, []).append(target)
        self._full = {str(target): target for target in self._models}

    def text(self, row: Row, column: str, remedy: str) -> str:
        """The value of a column that must be there; ids may be numbers."""
        value = row.get(column)
        if value is None or value == "":
            raise _wrong(column, f"is missing: {remedy}")
        if not isinstance(value, str | int):
            raise _wrong(column, f"{shown(value)} is not a text: {remedy}")
        return str(value)

    def prompt(self, row: Row) -> Prompt:
        """Its size in tokens, and its features or what they are made of."""
        text, tokens = row.get("prompt"), row.get("prompt_tokens")
        size = 0
        if text is not None and not isinstance(text, str):
            raise _wrong("prompt", f"{shown(text)} is not a text: give what the user has asked")
        if tokens is not None and tokens != "":
            size = int(_number("prompt_tokens", tokens, 0, 2**53))
        elif text is not None:
            size = estimate_text(text)
        given, made_by = row.get("features"), row.get("features_by")
        if given is not None and made_by == self._features.name:
            return Prompt(size, self._features.name, self._unpacked(given), "")
        if text is None or text == "":
            if given is not None:
                said = (
                    f"{made_by!r} has made them, and this configuration compares those of "
                    f"{self._features.name!r}: give the prompts as well"
                )
                raise _wrong("features_by", said)
            raise _wrong("prompt", "is missing: give the text, or features of an export")
        text = shortened(text, MOST_CHARACTERS)
        if self._later:
            return Prompt(size, self._features.name, None, text)
        # In this order: the name is another one when the embedder turns out to be missing.
        known = packed(self._features.vector(text))
        return Prompt(size, self._features.name, known, text)

    def outcome(self, row: Row) -> Checked:
        """Which target it is about, how good it was and what it cost."""
        target = self._target(self.text(row, "model", "give provider/model"))
        score = _number("score", row.get("score"), 0, 1)
        cost = row.get("cost_usd")
        source = row.get("source") or Source.FEEDBACK.value
        try:
            quality = Quality(score, Source(source))
        except ValueError:
            raise _wrong("source", f"{shown(source)} is none; give {_SOURCES}") from None
        nanos = None
        if cost is not None and cost != "":
            nanos = round(_number("cost_usd", cost, 0, _DEAREST_USD) * NANOS)
        return Checked(target, self._models[target], quality, nanos)

    def _target(self, name: str) -> Target:
        if name in self._full:
            return self._full[name]
        found = self._names.get(name, [])
        if len(found) == 1:
            return found[0]
        if found:
            several = " and ".join(map(str, found))
            raise _wrong("model", f"{name!r} may be {several}: write one of them")
        known = ", ".join(self._full) or "none"
        raise _wrong(
            "model",
            f"{name!r} is not a configured target: write one of {known}, or add it to the "
            "targets of a model",
        )

    def _unpacked(self, given: object) -> bytes:
        try:
            data = base64.b64decode(str(given), validate=True)
            numbers = unpacked(data)
        except (ValueError, binascii.Error):
            raise _wrong("features", "are no floats in Base64, as an export writes them") from None
        if not is_sound(numbers):
            said = f"are {len(numbers)} numbers; {self._features.name!r} makes {SIZE}, all finite"
            raise _wrong("features", f"{said}: give the row as it was exported, or its prompt")
        return data


def _number(column: str, value: Any, least: float, most: float) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not least <= number <= most:
        raise _wrong(column, f"{shown(value)} is not a number from {least:g} to {most:g}")
    return number


def _wrong(column: str, message: str) -> InvalidRequest:
    return InvalidRequest.of([Problem(column, message)])
