"""Which targets are left out because they cannot serve a request."""

from typing import Any

import pytest

from penstock.contract.errors import ConfigurationError, InvalidRequest
from penstock.contract.exchange import SamplingRequest
from penstock.contract.messages import Audio, Image, Message, Text, ToolResult, user
from penstock.contract.options import (
    Capabilities,
    MCPTool,
    ModelPreferences,
    OutputSchema,
    ToolDefinition,
)
from penstock.contract.ports import Target
from penstock.routing.router import TargetTable, Ways
from tests.unit.routing.test_ranking import Down

POOR, RICH = Target("a", "poor"), Target("b", "rich")
BOTH = (POOR, RICH)
EVERYTHING = Capabilities(audio=True, native_mcp=True)
PICTURE = Image(data="AAAA", mime_type="image/png")
LINK = Image(url="https://example.org/a.png")
SOUND = Audio(data="AAAA", mime_type="audio/wav")


def table(poor: Capabilities, rich: Capabilities = EVERYTHING, *down: Target) -> TargetTable:
    able = {POOR: poor, RICH: rich}
    ways = Ways(able.__getitem__)
    return TargetTable({"m": BOTH}, {"a", "b"}, "m", health=Down(*down), ways=ways)


def ask(*parts: Any, max_tokens: int = 9, **options: Any) -> SamplingRequest:
    said = (Text(text="Look:"), *parts)
    return SamplingRequest(messages=(Message("user", said),), max_tokens=max_tokens, **options)


NEEDS: list[tuple[SamplingRequest, Capabilities, str]] = [
    (ask(PICTURE), Capabilities(images=False), "takes no images"),
    (ask(LINK), Capabilities(image_urls=False), "takes no images by url"),
    (ask(SOUND), Capabilities(), "takes no audio"),
    (
        ask(ToolResult(tool_use_id="1", content=(PICTURE,))),
        Capabilities(images=False),
        "takes no images",
    ),
    (ask(tools=(ToolDefinition("t"),)), Capabilities(tools=False), "takes no tools"),
    (
        ask(mcp_tools=(MCPTool("https://example.org", "docs"),)),
        Capabilities(),
        "connects to no MCP servers",
    ),
    (
        ask(output_schema=OutputSchema({"type": "object"})),
        Capabilities(output_schema=False),
        "has no structured output",
    ),
    (
        ask(max_tokens=9000),
        Capabilities(max_output=8192),
        "answers with 8192 tokens at most (9000 asked for)",
    ),
]


@pytest.mark.parametrize(("request_", "poor", "why"), NEEDS, ids=[why for _, _, why in NEEDS])
async def test_a_target_that_cannot_serve_is_left_out_and_told_so(
    request_: SamplingRequest, poor: Capabilities, why: str
) -> None:
    router = table(poor)
    assert await router.rank(request_) == (RICH,)
    decision = await router.explain(request_)
    assert decision.targets == (RICH,)
    assert [(each.target, each.reasons) for each in decision.left_out] == [
        (POOR, (why, "target 1 of 'm'"))
    ]


@pytest.mark.parametrize(("request_", "poor"), [each[:2] for each in NEEDS])
async def test_when_none_can_all_are_tried_as_before(
    request_: SamplingRequest, poor: Capabilities
) -> None:
    assert await table(poor, poor).rank(request_) == BOTH
    decision = await table(poor, poor).explain(request_)
    assert (decision.targets, decision.left_out) == (BOTH, ())


async def test_streaming_matters_only_to_streams() -> None:
    router = table(Capabilities(streaming=False))
    assert await router.rank(ask()) == BOTH
    assert await router.rank(ask(), streaming=True) == (RICH,)
    (left_out,) = (await router.explain(ask(), streaming=True)).left_out
    assert left_out.reasons[0] == "does not stream"


async def test_what_may_be_dropped_nobody_lacks_and_content_is_never_dropped() -> None:
    poor = Capabilities(tools=False, images=False, max_output=5)
    lenient = ask(tools=(ToolDefinition("t"),), ignore_invalid_options=True)
    assert await table(poor).rank(lenient) == BOTH
    assert await table(poor).rank(ask(PICTURE, ignore_invalid_options=True)) == (RICH,)


async def test_a_schema_that_may_be_asked_for_in_words_needs_no_mode() -> None:
    schema = OutputSchema({"type": "object"}, prompted=True)
    assert await table(Capabilities(output_schema=False)).rank(ask(output_schema=schema)) == BOTH


@pytest.mark.parametrize(
    ("words", "max_tokens", "ranked", "left_out"),
    [
        (100, 100, BOTH, ()),
        (100, 950, (RICH, POOR), ()),
        (5000, 100, (RICH,), (POOR,)),
    ],
)
async def test_a_window_that_is_too_small_comes_last_or_not_at_all(
    words: int, max_tokens: int, ranked: tuple[Target, ...], left_out: tuple[Target, ...]
) -> None:
    router = table(Capabilities(context_window=1000))
    request = SamplingRequest(messages=(user("word " * words),), max_tokens=max_tokens)
    assert await router.rank(request) == ranked
    decision = await router.explain(request)
    assert decision.targets == ranked
    assert tuple(each.target for each in decision.left_out) == left_out
    if ranked != BOTH:
        (poor,) = [e for e in (*decision.ranked, *decision.left_out) if e.target == POOR]
        assert "holds 1000 tokens" in poor.reasons[0]


async def test_what_may_be_too_small_still_goes_before_what_cannot_be_asked() -> None:
    router = table(Capabilities(context_window=1000), EVERYTHING, RICH)
    request = SamplingRequest(messages=(user("word " * 100),), max_tokens=950)
    assert await router.rank(request) == (POOR, RICH)


async def test_a_target_that_cannot_be_built_is_left_to_the_pool() -> None:
    def able(target: Target) -> Capabilities:
        if target == POOR:
            raise ConfigurationError("no key")
        return EVERYTHING

    router = TargetTable({"m": BOTH}, {"a", "b"}, "m", ways=Ways(able))
    assert await router.rank(ask(PICTURE)) == BOTH
    assert await router.rank(ask()) == BOTH


async def test_a_replaced_provider_is_asked_anew() -> None:
    able = {POOR: Capabilities(max_output=5), RICH: EVERYTHING}
    router = TargetTable({"m": BOTH}, {"a", "b"}, "m", ways=Ways(able.__getitem__))
    assert await router.rank(ask(max_tokens=9)) == (RICH,)
    able[POOR], able[RICH] = EVERYTHING, Capabilities(max_output=5)
    router.renew()
    assert await router.rank(ask(max_tokens=9)) == (POOR,)


async def test_a_hint_does_not_leave_a_request_without_any_target() -> None:
    able = {POOR: Capabilities(images=False), RICH: EVERYTHING}
    models = {"m": (POOR,), "other": (RICH,)}
    router = TargetTable(models, {"a", "b"}, "m", ways=Ways(able.__getitem__))
    unheard = ModelPreferences(("unheard-of",))
    assert await router.rank(ask(PICTURE, model_preferences=unheard)) == (POOR,)


async def test_a_request_may_insist_on_a_provider() -> None:
    router = table(EVERYTHING)
    request = ask(metadata={"_provider": "b"})
    assert await router.rank(request) == (RICH,)
    decision = await router.explain(request)
    assert [(each.target, each.reasons[0]) for each in decision.left_out] == [
        (POOR, "is not of the provider 'b'")
    ]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("bb", "metadata._provider: there is no provider 'bb'; did you mean 'b'?"),
        ("zzz", "metadata._provider: there is no provider 'zzz'; known: a, b, c"),
        (7, "metadata._provider: is int; give the name of a provider"),
        (
            "c",
            "metadata._provider: 'c' serves none of the targets of this model; it has a/poor, "
            "b/rich",
        ),
    ],
)
async def test_a_provider_that_cannot_be_insisted_on_is_refused(name: object, message: str) -> None:
    router = TargetTable({"m": BOTH}, {"a", "b", "c"}, "m")
    for call in (router.rank, router.explain):
        with pytest.raises(InvalidRequest) as caught:
            await call(ask(metadata={"_provider": name}, model="m"))
        assert str(caught.value) == message


async def test_without_a_model_any_target_of_that_provider_may_serve() -> None:
    router = TargetTable({"m": (POOR,), "other": (RICH,)}, {"a", "b"}, "m")
    assert await router.rank(ask(metadata={"_provider": "b"})) == (RICH,)
    assert await router.rank(ask(metadata={"_provider": "a"})) == (POOR,)
