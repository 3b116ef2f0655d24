"""The tree of errors: its drawing, its attributes, and its way across process borders."""

import copy
import importlib
import inspect
import pickle
import re

import pytest

import penstock
from penstock.contract import errors
from penstock.contract.errors import (
    AllTargetsFailed,
    ContentRejected,
    InvalidRequest,
    PenstockError,
    Problem,
    ProviderTimeout,
    ProviderUnavailable,
    RateLimited,
    StreamInterrupted,
    StructuredOutputInvalid,
    UnsupportedOption,
)

BRANCH = re.compile(r"^(?P<indent>[│ ]*)[├└]── (?P<name>\w+)\s+(?P<meaning>\S.*)$")
SAMPLES: dict[type[PenstockError], PenstockError] = {
    InvalidRequest: InvalidRequest("bad", problems=[Problem("a", "b")]),
    UnsupportedOption: UnsupportedOption("no", options=["tools"], provider="p", model="m"),
    RateLimited: RateLimited("slow down", retry_after=1.5, status=429),
    ContentRejected: ContentRejected("no", partial="so far"),
    StreamInterrupted: StreamInterrupted("cut", partial="so far"),
    StructuredOutputInvalid: StructuredOutputInvalid("odd", raw="{"),
    AllTargetsFailed: AllTargetsFailed("all", attempts=[RateLimited("slow down")]),
}


def drawn_tree() -> dict[str, str]:
    """Each drawn name with its parent's, in the order of the drawing."""
    parents: dict[str, str] = {}
    path = ["PenstockError"]
    for line in inspect.cleandoc(errors.__doc__ or "").splitlines():
        if found := BRANCH.match(line):
            depth = len(found["indent"]) // 4 + 1
            parents[found["name"]] = path[depth - 1]
            path[depth:] = [found["name"]]
    return parents


def real_tree(root: type[PenstockError] = PenstockError) -> dict[str, str]:
    found: dict[str, str] = {}
    for child in root.__subclasses__():
        if child.__module__.startswith("penstock"):
            found[child.__name__] = root.__name__
            found |= real_tree(child)
    return found


def classes() -> list[type[PenstockError]]:
    return [PenstockError, *(getattr(errors, name) for name in drawn_tree())]


def sample(kind: type[PenstockError]) -> PenstockError:
    return SAMPLES[kind] if kind in SAMPLES else kind("it broke")


def test_the_drawing_shows_the_real_tree() -> None:
    # No layer may add a branch of its own that callers do not find in the drawing.
    for name in ("engine", "testing", "providers.http", "providers.openai_chat", "server", "cli"):
        importlib.import_module(f"penstock.{name}")
    assert drawn_tree() == real_tree()
    assert len(drawn_tree()) == 20


def test_the_drawing_follows_the_order_of_the_definitions() -> None:
    defined = [
        name
        for name, value in vars(errors).items()
        if inspect.isclass(value) and issubclass(value, PenstockError)
    ]
    assert ["PenstockError", *drawn_tree()] == defined


@pytest.mark.parametrize("kind", classes())
def test_every_error_is_public_and_documented(kind: type[PenstockError]) -> None:
    assert getattr(penstock, kind.__name__) is kind
    assert kind.__name__ in penstock.__all__
    assert kind.__doc__


@pytest.mark.parametrize("kind", classes())
def test_every_error_carries_the_place_of_the_failure(kind: type[PenstockError]) -> None:
    error = copy.copy(sample(kind))
    for name in ("provider", "model", "status", "retryable", "request_id"):
        assert hasattr(error, name)
    assert error.located(provider="p", model="m", request_id="r") is error
    assert (error.provider, error.model, error.request_id) == ("p", "m", "r")
    error.located(provider="other", model="other", request_id="other")
    assert (error.provider, error.model, error.request_id) == ("p", "m", "r")


@pytest.mark.parametrize("kind", classes())
@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_every_error_survives_copying_and_pickling(
    kind: type[PenstockError], protocol: int
) -> None:
    error = sample(kind).located(provider="p", model="m", request_id="r")
    for twin in (copy.copy(error), pickle.loads(pickle.dumps(error, protocol))):
        assert type(twin) is kind
        assert str(twin) == str(error)
        assert twin.args == error.args
        state = {name: value for name, value in vars(error).items() if name != "attempts"}
        assert state.items() <= vars(twin).items()
    deep = copy.deepcopy(error)
    assert vars(deep).keys() == vars(error).keys()


def test_the_attempts_survive_pickling() -> None:
    error = AllTargetsFailed("all", attempts=[RateLimited("slow down", retry_after=2.0)])
    (attempt,) = pickle.loads(pickle.dumps(error)).attempts
    assert isinstance(attempt, RateLimited)
    assert attempt.retry_after == 2.0


@pytest.mark.parametrize(
    ("kind", "retryable"),
    [
        (ProviderUnavailable, True),
        (ProviderTimeout, False),
        (StreamInterrupted, True),
        (errors.MalformedResponse, True),
        (RateLimited, True),
        (InvalidRequest, False),
        (errors.AuthenticationFailed, False),
        (errors.ConfigurationError, False),
        (errors.RequestCancelled, False),
    ],
)
def test_whether_the_same_call_may_succeed_later(
    kind: type[PenstockError], retryable: bool
) -> None:
    assert sample(kind).retryable is retryable


def test_an_error_may_know_better_than_its_class_whether_to_retry() -> None:
    assert ProviderUnavailable("no", retryable=False).retryable is False
    assert RateLimited("the account is empty", retryable=False).retryable is False


def test_all_targets_failed_is_retryable_when_one_attempt_is() -> None:
    hopeless = errors.AuthenticationFailed("no")
    assert AllTargetsFailed("all", attempts=[hopeless]).retryable is False
    assert AllTargetsFailed("all", attempts=[hopeless, RateLimited("later")]).retryable is True


def test_locating_all_targets_failed_names_the_request_on_every_attempt() -> None:
    attempt = RateLimited("later", provider="p")
    AllTargetsFailed("all", attempts=[attempt]).located(provider="q", request_id="r")
    assert (attempt.provider, attempt.request_id) == ("p", "r")


def test_one_invalid_request_lists_every_problem() -> None:
    problems = [Problem("max_tokens", "is required"), Problem("", "the file is missing")]
    error = InvalidRequest.of(problems)
    assert error.problems == tuple(problems)
    assert str(error) == "max_tokens: is required; the file is missing"


def test_an_unsupported_option_is_a_problem_with_a_path() -> None:
    error = UnsupportedOption("no", options=["tools", "audio"], provider="p", model="m")
    assert error.options == ("tools", "audio")
    assert [str(problem) for problem in error.problems] == [
        "tools: p/m does not support it",
        "audio: p/m does not support it",
    ]
