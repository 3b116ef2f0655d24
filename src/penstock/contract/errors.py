"""Everything that Penstock raises, in one tree.

```
PenstockError
├── InvalidRequest             the request breaks a rule; every problem is listed with its path
│   ├── UnsupportedOption      this provider or model has no such option
│   └── ContextLengthExceeded  the prompt does not fit the model's window
├── AuthenticationFailed       the provider refused the credentials
├── ModelNotFound              no such model, alias or provider
├── RateLimited                too many requests, or an empty account
├── ContentRejected            a filter or a refusal stopped the answer
├── ProviderUnavailable        the provider could not be reached, or failed on its side
│   ├── ProviderTimeout        it stayed silent for longer than allowed
│   ├── StreamInterrupted      the stream ended before its terminal event; `partial` is its text
│   └── MalformedResponse      it answered with something that is not its own protocol
├── StructuredOutputInvalid    the answer does not fit the asked-for type; `raw` holds it
├── PromptContextFailed        a provider of prompt contexts raised or ran out of time
├── ToolFailed                 a tool raised, timed out or does not exist
├── BudgetExceeded             the request would cost more than a budget has left
├── SamplingRejected           an approver said no
├── AllTargetsFailed           every target was tried; `attempts` holds each error in order
├── RequestCancelled           the caller cancelled
├── StorageUnavailable         the ledger or the keys cannot be read or written now
└── ConfigurationError         the settings are wrong; the message names file, line and remedy
```

Each error carries `provider`, `model`, `status` (the provider's HTTP status), `retryable` (the same
call may succeed later on the same target), `retry_after` (the pause in seconds that the provider
asks for, if it does) and `request_id`; `__cause__` holds the lower-level error. `reason` is the
word that the host of an MCP client gives for its refusal, and None elsewhere.

`metadata` is what is known of the request when it failed: `request_id`, `attempts`, `latency_ms`,
`usage` (tokens), `tool_rounds`, `cost_nanos` and more; `metadata.to_dict()` has them as JSON. It is
None when the error came before there was a request.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any, ClassVar

import msgspec

from penstock.contract.checks.lengths import MESSAGE, PROBLEM, cut
from penstock.contract.metadata import ErrorMetadata

MOST_PROBLEMS = 100
"""An error lists at most so many problems of one request."""
LONGEST_PROBLEM = 1000
"""An error shows at most so many characters of a problem's path, and of its message."""
_LONGEST_SHOWN = 100


class Advice(StrEnum):
    """What a caller can do about an error, where that is said differently at each interface."""

    IGNORE_OPTIONS = "ignore_options"
    ENCODE_AUDIO = "encode_audio"


PYTHON_ADVICE: Mapping[Advice, str] = {
    Advice.IGNORE_OPTIONS: ", or set ignore_invalid_options=True",
    Advice.ENCODE_AUDIO: "; penstock.audio(...) makes it",
}
"""How `str(error)` words it. `error.message`, which HTTP and the command line show, has none."""


class Problem(msgspec.Struct, frozen=True):
    """One broken rule: where it is (`messages[2].content`), and what would be right."""

    path: str
    message: str
    advice: Advice | None = None

    def __post_init__(self) -> None:
        """Cut what a caller or a provider has made too long to show."""
        msgspec.structs.force_setattr(self, "path", cut(self.path))
        msgspec.structs.force_setattr(self, "message", cut(self.message, PROBLEM))

    def __str__(self) -> str:
        """`path: message`, the way it is shown to people."""
        return f"{self.path}: {self.message}" if self.path else self.message


class ProblemList(list[Problem]):
    """The first problems of a request; `total` counts the others too."""

    def __init__(self) -> None:
        """Empty."""
        super().__init__()
        self.total = 0

    def append(self, problem: Problem, /) -> None:
        """Count the problem, and keep it if it is one of the first."""
        self.total += 1
        if len(self) <= MOST_PROBLEMS:
            super().append(problem)


def first_problems(problems: Iterable[Problem]) -> list[Problem]:
    """The problems that an error lists: at most 100, the last of which counts the rest.

    The text of each is limited, and no more than these are kept in memory.
    """
    if not isinstance(problems, ProblemList):
        found = ProblemList()
        for problem in problems:
            found.append(problem)
        problems = found
    listed = list(map(_shortened, problems[:MOST_PROBLEMS]))
    if problems.total > MOST_PROBLEMS:
        rest = problems.total - MOST_PROBLEMS + 1
        listed[-1] = Problem("", f"and {rest} more problems")
    return listed


def _shortened(problem: Problem) -> Problem:
    if len(problem.path) <= LONGEST_PROBLEM and len(problem.message) <= LONGEST_PROBLEM:
        return problem
    return Problem(_ended(problem.path), _ended(problem.message), problem.advice)


def _ended(text: str) -> str:
    return f"{text[:LONGEST_PROBLEM]}..." if len(text) > LONGEST_PROBLEM else text


def shown(value: object) -> str:
    """A wrong value as a message shows it: as it was written, but for what would fill a screen."""
    if isinstance(value, str | bytes):
        value = value[: _LONGEST_SHOWN + 1]
    try:
        text = repr(value)
    except ValueError:  # of a whole number with thousands of digits
        text = f"a very long {type(value).__name__}"
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}..."


class PenstockError(Exception):
    """The root of the tree: catch this to catch everything."""

    default_retryable: ClassVar[bool] = False

    def __init__(
        self,
        message: str,
        *,
        provider: str | None = None,
        model: str | None = None,
        status: int | None = None,
        retryable: bool | None = None,
        retry_after: float | None = None,
        request_id: str | None = None,
        advice: Iterable[Advice] = (),
    ) -> None:
        """Say what happened and, where known, to whom.

        `advice` is worded by the interface at which the error is shown.
        """
        message = cut(message, MESSAGE)
        super().__init__(message)
        self.message = message
        self.advice = tuple(dict.fromkeys(advice))
        self.provider = provider
        self.model = None if model is None else cut(model)
        self.status = status
        self.retryable = self.default_retryable if retryable is None else retryable
        self.retry_after = retry_after
        self.request_id = request_id
        self.reason: str | None = None
        self.metadata: ErrorMetadata | None = None

    def __str__(self) -> str:
        """The message, with advice for callers of the Python API."""
        return self.message + "".join(PYTHON_ADVICE[each] for each in self.advice)

    def located(
        self,
        *,
        provider: str | None = None,
        model: str | None = None,
        request_id: str | None = None,
        metadata: ErrorMetadata | None = None,
    ) -> PenstockError:
        """Fill in what is still unknown about the failure's place, and return the same error."""
        self.provider = self.provider or provider
        self.model = self.model or model
        self.request_id = self.request_id or request_id
        self.metadata = self.metadata or metadata
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        """Copied and pickled by state: a subclass's own arguments would not fit `cls(*args)`."""
        return _revive, (type(self), self.args, self.__dict__)


def attach_metadata(error: BaseException, metadata: ErrorMetadata) -> None:
    """Set what is known of the request that this error ended, in place of what it had.

    A cancellation carries it to the RequestCancelled that is raised in its place.
    """
    error.__dict__["metadata"] = metadata


def attached_metadata(error: BaseException | None) -> ErrorMetadata | None:
    """What `attach_metadata` has set."""
    found = None if error is None else error.__dict__.get("metadata")
    return found if isinstance(found, ErrorMetadata) else None


def _revive(
    kind: type[PenstockError], arguments: tuple[Any, ...], state: dict[str, Any]
) -> PenstockError:
    error = kind.__new__(kind, *arguments)
    error.__dict__.update(state)
    return error


class InvalidRequest(PenstockError):
    """The request breaks a rule; `problems` lists them, each with its path: the first hundred."""

    def __init__(
        self,
        message: str,
        *,
        problems: Sequence[Problem] = (),
        provider: str | None = None,
        model: str | None = None,
        status: int | None = None,
        advice: Iterable[Advice] = (),
    ) -> None:
        """Keep the single problems for callers that show them next to their fields."""
        problems = tuple(problems)
        own = [each.advice for each in problems if each.advice is not None]
        super().__init__(
            message, provider=provider, model=model, status=status, advice=(*own, *advice)
        )
        self.problems = problems

    @staticmethod
    def of(problems: Iterable[Problem]) -> InvalidRequest:
        """One error out of everything that is wrong; of very many problems, the first ones."""
        listed = first_problems(problems)
        return InvalidRequest("; ".join(str(problem) for problem in listed), problems=listed)


class UnsupportedOption(InvalidRequest):
    """The provider or model has no such option; `options` names them."""

    def __init__(
        self,
        message: str,
        *,
        options: Sequence[str],
        provider: str,
        model: str,
        advice: Iterable[Advice] = (),
    ) -> None:
        """Name the options next to who refuses them."""
        problems = [Problem(name, f"{provider}/{model} does not support it") for name in options]
        super().__init__(message, problems=problems, provider=provider, model=model, advice=advice)
        self.options = tuple(options)


class ContextLengthExceeded(InvalidRequest):
    """The prompt does not fit the model's window; a larger model may take it."""


class AuthenticationFailed(PenstockError):
    """The provider refused the credentials."""


class ModelNotFound(PenstockError):
    """There is no model, alias or provider of that name."""


class RateLimited(PenstockError):
    """Too many requests, or an empty account, which is not retryable."""

    default_retryable = True


class ContentRejected(PenstockError):
    """A filter or the model itself refused; `partial` is what was said before."""

    def __init__(
        self,
        message: str,
        *,
        partial: str = "",
        provider: str | None = None,
        model: str | None = None,
        status: int | None = None,
    ) -> None:
        """Keep the text that came before the refusal."""
        super().__init__(message, provider=provider, model=model, status=status)
        self.partial = partial


class ProviderUnavailable(PenstockError):
    """The provider could not be reached or failed on its side."""

    default_retryable = True


class ProviderTimeout(ProviderUnavailable):
    """The provider stayed silent for longer than the limit; a silent target is not asked again."""

    default_retryable = False


class StreamInterrupted(ProviderUnavailable):
    """The stream broke before its terminal event; `partial` is the text that had arrived."""

    def __init__(
        self,
        message: str,
        *,
        partial: str = "",
        provider: str | None = None,
        model: str | None = None,
    ) -> None:
        """Keep the delivered text so that another target can continue it."""
        super().__init__(message, provider=provider, model=model)
        self.partial = partial


class MalformedResponse(ProviderUnavailable):
    """The provider answered with something that is not its own protocol."""


class StructuredOutputInvalid(PenstockError):
    """The answer does not fit the type that was asked for; `raw` is the text of the answer."""

    def __init__(
        self, message: str, *, raw: str, provider: str | None = None, model: str | None = None
    ) -> None:
        """Keep the raw answer for inspection."""
        super().__init__(message, provider=provider, model=model)
        self.raw = raw


class PromptContextFailed(PenstockError):
    """A provider of prompt contexts raised, ran out of time or gave something unusable."""


class ToolFailed(PenstockError):
    """A tool raised, ran out of time or does not exist."""


class BudgetExceeded(PenstockError):
    """The request would cost more than a budget has left.

    `budget` is its name; `asked_nanos`, `remaining_nanos` and `limit_nanos` are nano-dollars;
    `resets_at` is when its next period begins, in Unix seconds, and None when it never does.
    `retry_after` counts the seconds until then, unless the request would not fit even then.
    """

    def __init__(
        self,
        message: str,
        *,
        budget: str = "",
        limit_nanos: int | None = None,
        remaining_nanos: int | None = None,
        asked_nanos: int | None = None,
        resets_at: float | None = None,
        retry_after: float | None = None,
        request_id: str | None = None,
    ) -> None:
        """Say which budget refuses, by how much, and until when."""
        super().__init__(message, retry_after=retry_after, request_id=request_id)
        self.budget = budget
        self.limit_nanos = limit_nanos
        self.remaining_nanos = remaining_nanos
        self.asked_nanos = asked_nanos
        self.resets_at = resets_at


class SamplingRejected(PenstockError):
    """An approver said no."""


class AllTargetsFailed(PenstockError):
    """Every target was tried; `attempts` holds what each one said, in order."""

    def __init__(self, message: str, *, attempts: Sequence[PenstockError]) -> None:
        """Keep every attempt's error; the last is the likeliest cause."""
        super().__init__(
            message,
            retryable=any(error.retryable for error in attempts),
            advice=[each for error in attempts for each in error.advice],
        )
        self.attempts = tuple(attempts)

    def located(
        self,
        *,
        provider: str | None = None,
        model: str | None = None,
        request_id: str | None = None,
        metadata: ErrorMetadata | None = None,
    ) -> PenstockError:
        """The attempts belong to the same request, each to its own provider and model."""
        for error in self.attempts:
            error.located(request_id=request_id)
        return super().located(
            provider=provider, model=model, request_id=request_id, metadata=metadata
        )


class RequestCancelled(PenstockError):
    """The caller cancelled the request."""


class StorageUnavailable(PenstockError):
    """The ledger or the keys cannot be read or written now: locked, full, or not the same store."""

    default_retryable = True


class ConfigurationError(PenstockError):
    """The settings are wrong; the message names the place and the remedy."""
