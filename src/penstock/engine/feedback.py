"""What an engine learns from its requests, and how it is told how good an answer was."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

from penstock.contract.checks.spelling import methods_suggest_names
from penstock.contract.errors import InvalidRequest, Problem, shown
from penstock.contract.requests import Caller
from penstock.pipeline.registry import is_generated_id

if TYPE_CHECKING:
    from penstock.routing.learning.service import Learning

FeedbackSource: TypeAlias = Literal["feedback", "validation", "judge", "retry"]

_LONGEST_ID = 200


@methods_suggest_names
class Teaching:
    """What an engine offers to those who know how good its answers were."""

    def __init__(self, learning: Learning | None) -> None:
        """None: no model of this engine learns."""
        self._learning = learning

    @property
    def learning(self) -> Learning | None:
        """What the models learn with; None when none of them does."""
        return self._learning

    async def record_feedback(
        self,
        request_id: str,
        *,
        score: float,
        source: FeedbackSource = "feedback",
        caller: Caller | None = None,
    ) -> None:
        """Say how good the answer to a request was: 0 is useless, 1 is perfect.

        `source` says who knows it: a person or program, a check, another model, or that the caller
        asked again; they count differently. Of one source the latest word counts. Raises
        InvalidRequest for a request that is not remembered: only those of models with
        `routing = "learned"` are.
        """
        problems: list[Problem] = []
        if not (isinstance(score, int | float) and 0 <= score <= 1):  # pyright: ignore[reportUnnecessaryIsInstance]
            text = f"is {shown(score)}; give a number from 0 (useless) to 1 (perfect)"
            problems.append(Problem("score", text))
        if not is_name(request_id):
            text = f"is {shown(request_id)}; give the `request_id` of an answer"
            problems.append(Problem("request_id", text))
        elif self._learning is None:
            text = 'cannot be scored: no model of the configuration has routing = "learned"'
            problems.append(Problem("request_id", text))
        if problems or self._learning is None:
            raise InvalidRequest.of(problems)
        from penstock.routing.outcomes.outcome import Quality, Source

        try:
            quality = Quality(float(score), Source(source))
        except ValueError:
            known = ", ".join(each.value for each in Source)
            problem = Problem("source", f"is {shown(source)}; it must be one of {known}")
            raise InvalidRequest.of([problem]) from None
        key = None if caller is None else caller.key
        # An id that a caller has chosen can be guessed, or be chosen by another key as well.
        own_only = key is not None and not is_generated_id(request_id)
        await self._learning.feedback(request_id, quality, key, own_only=own_only)

    def validated(self, request_id: str, /, *, fits: bool) -> None:
        """Say whether an answer was of the type that it was read as; generators do."""
        if self._learning is not None:
            self._learning.validated(request_id, fits=fits)

    async def _go_on_learning(self, before: Teaching) -> None:
        """Begin with what another has learnt, which learns no more."""
        if self._learning is not None:
            if before._learning is not None:
                self._learning.adopt(before._learning)
            await self._learning.look(serving=True)


def is_name(text: object) -> bool:
    """Whether this can be the id of a request at all."""
    if not isinstance(text, str) or not 0 < len(text) <= _LONGEST_ID:
        return False
    return not any("\ud800" <= each <= "\udfff" for each in text)
