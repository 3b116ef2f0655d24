"""From the name that a caller gives to the targets that serve it."""

import pytest

from penstock.contract.errors import ConfigurationError, ModelNotFound
from penstock.contract.exchange import SamplingRequest
from penstock.contract.messages import user
from penstock.contract.ports import Target
from penstock.routing.router import TargetTable, parse_target

FAST = (Target("groq", "llama"), Target("embedded", "smollm2"))
TABLE = TargetTable({"fast": FAST, "a/b": (Target("groq", "x"),)}, {"groq", "embedded"}, "fast")


def test_a_target_is_read_up_to_the_first_slash() -> None:
    assert parse_target("openrouter/meta/llama") == Target("openrouter", "meta/llama")


@pytest.mark.parametrize("text", ["", "/", "groq", "groq/", "/llama"])
def test_a_text_that_is_no_target_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="is not a target; write provider/model"):
        parse_target(text)


async def test_an_alias_gives_its_targets_in_their_order() -> None:
    request = SamplingRequest(messages=(user("hi"),), max_tokens=1, model="fast")
    assert await TABLE.rank(request) == FAST
    assert TABLE.resolve("a/b") == (Target("groq", "x"),)


@pytest.mark.parametrize("name", [None, ""])
def test_no_name_means_the_default(name: str | None) -> None:
    assert TABLE.resolve(name) == FAST


def test_a_provider_and_a_model_need_no_alias() -> None:
    assert TABLE.resolve("groq/meta/llama-3") == (Target("groq", "meta/llama-3"),)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("fsat", "there is no model 'fsat'; did you mean 'fast'?"),
        ("zzz", "there is no model 'zzz'; known: a/b, fast; or write provider/model"),
        ("grok/llama", "there is no provider 'grok'; did you mean 'groq'?"),
        ("zzz/llama", "there is no provider 'zzz'; known: embedded, groq"),
        ("/llama", "there is no provider ''; known: embedded, groq"),
        ("groq/", "'groq/' names no model; write groq/model"),
    ],
)
def test_an_unknown_name_is_refused_with_the_nearest_one(name: str, message: str) -> None:
    with pytest.raises(ModelNotFound) as caught:
        TABLE.resolve(name)
    assert str(caught.value) == message
    assert caught.value.model == name


def test_without_any_model_the_remedy_is_named() -> None:
    empty = TargetTable({}, {"groq"}, None)
    with pytest.raises(ModelNotFound, match=r"no model was given .* none in \[models\]"):
        empty.resolve(None)
    with pytest.raises(ModelNotFound) as caught:
        empty.resolve("zzz")
    assert str(caught.value) == "there is no model 'zzz'; or write provider/model"
