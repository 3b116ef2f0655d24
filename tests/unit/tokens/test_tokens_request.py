"""Estimates of whole requests: what wraps the texts, tools, pictures and sounds."""

from __future__ import annotations

import base64
import struct
from typing import Any

import pytest

from penstock.contract.exchange import SamplingRequest
from penstock.contract.media import audio, image
from penstock.contract.messages import (
    Audio,
    Content,
    Image,
    Reasoning,
    ToolResult,
    ToolUse,
    assistant,
    user,
)
from penstock.contract.options import OutputSchema, ToolDefinition
from penstock.tokens import (
    Estimates,
    estimate_request,
    estimate_text,
    family_of,
    measure_request,
    reserve_tokens,
    upper_tokens,
)
from penstock.tokens import estimate as estimating
from penstock.tokens.estimate import MESSAGE_TOKENS
from penstock.tokens.text import Count, measure

GPT, CLAUDE, GEMINI = "gpt-6-luna", "claude-sonnet-5-5", "gemini-3.5-flash"
QUESTION = "How deep is the river at the old mill?"
PART = 2
"""Tokens between two parts of a message."""
TOOL = ToolDefinition("depth", "How deep a water is.", {"type": "object", "properties": {}})


def asked(*parts: str | Content, **options: Any) -> SamplingRequest:
    fields: dict[str, Any] = {"messages": (user(*parts),), "max_tokens": 9, **options}
    return SamplingRequest(**fields)


def added(model: str = GPT, **options: Any) -> int:
    """What these options cost."""
    return estimate_request(asked(QUESTION, **options), model) - estimate_request(
        asked(QUESTION), model
    )


def png(width: int, height: int) -> bytes:
    return b"\x89PNG\r\n\x1a\n" + struct.pack(">I4sII", 13, b"IHDR", width, height) + bytes(64)


def jpeg(width: int, height: int, thumbnail: int = 5000) -> bytes:
    """With a long segment, padding and a table before the frame, as cameras write them."""
    segment = b"\xff\xe1" + struct.pack(">H", thumbnail + 2) + bytes(thumbnail)
    table = b"\xff\xff\xff\xc4" + struct.pack(">H", 4) + b"\0\0"
    frame = b"\xff\xc2" + struct.pack(">HBHH", 17, 8, height, width) + bytes(32)
    return b"\xff\xd8" + segment + table + frame


def webp(kind: bytes, body: bytes) -> bytes:
    return b"RIFF\0\0\0\0WEBP" + kind + b"\0\0\0\0" + body + bytes(64)


def test_a_message_costs_its_text_and_what_wraps_it() -> None:
    assert estimate_request(asked(QUESTION), GPT) == estimate_text(QUESTION) + MESSAGE_TOKENS
    twice = SamplingRequest(messages=(user(QUESTION), assistant(QUESTION)), max_tokens=9)
    assert estimate_request(twice, GPT) == 2 * estimate_request(asked(QUESTION), GPT)


@pytest.mark.parametrize(
    ("name", "family"),
    [
        ("claude-opus-5-5", "claude"),
        ("eu.anthropic.claude-sonnet-5", "claude"),
        ("Claude-Haiku", "claude"),
        ("gemini-2.0-flash", "gemini"),
        ("google/gemma-3", "gemini"),
        ("gpt-6-luna", "gpt"),
        ("openai/gpt-4.1-mini", "gpt"),
        ("o3", "gpt"),
        ("us.o4-mini", "gpt"),
        ("gpt-4-turbo", "measured"),
        ("gpt-35-turbo", "measured"),
        ("text-embedding-3-small", "measured"),
        ("meta-llama/Llama-2-70b-chat-hf", "measured"),
        ("us.meta.llama3-1-70b-instruct-v1:0", "measured"),
        ("accounts/fireworks/models/llama-v3p1-70b-instruct", "measured"),
        ("codellama:7b", "measured"),
        ("qwen3", "measured"),
        ("Qwen/Qwen2.5-72B-Instruct", "measured"),
        ("mistralai/Mixtral-8x7B-v0.1", "measured"),
        ("deepseek-ai/DeepSeek-V3.1", "measured"),
        ("cohere.command-r-plus-v1:0", "measured"),
        ("smollm2", "measured"),
        ("my-gpt-5-distilled", "other"),
        ("chinese-llama-2-7b", "other"),
        ("llama-5", "other"),
        ("meta-llama/Other", "other"),
        ("qwen3.5-plus", "other"),
        ("codeqwen1.5", "other"),
        ("deepseek-chat", "other"),
        ("phi-4", "other"),
        ("", "other"),
    ],
)
def test_a_family_is_known_by_its_name(name: str, family: str) -> None:
    assert family_of(name).name == family


def test_everything_that_the_model_reads_costs_something() -> None:
    assert added(system_prompt="Be exact.") == estimate_text("Be exact.") + MESSAGE_TOKENS
    assert added(tools=(TOOL,)) > MESSAGE_TOKENS + 10
    assert added(tools=(TOOL, TOOL)) == 2 * added(tools=(TOOL,))
    assert added(output_schema=OutputSchema({"type": "object"})) > MESSAGE_TOKENS
    assert added(temperature=0.5, stop_sequences=("END",), metadata={"user": "u"}) == 0


def test_claude_gets_instructions_as_soon_as_there_are_tools() -> None:
    assert added(CLAUDE, tools=(TOOL,)) > 300 + added(GPT, tools=(TOOL,))


def test_calls_and_their_results_cost_what_they_say() -> None:
    use = ToolUse("call_1", "depth", {"water": "the mill pond behind the weir"})
    result = ToolResult("call_1", structured_content={"feet": 12, "of": "the mill pond"})
    talk = SamplingRequest(messages=(user(QUESTION), assistant(use), user(result)), max_tokens=9)
    bare = estimate_request(asked(QUESTION), GPT)
    assert bare + 4 * MESSAGE_TOKENS + 20 < estimate_request(talk, GPT) < bare + 100


def test_thinking_is_counted_open_or_sealed() -> None:
    thought = Reasoning("The old mill is deep.", signature="c2VhbGVk" * 10)
    sealed = Reasoning(signature="c2VhbGVk" * 10, redacted=True)
    assert estimate_request(asked(thought), GPT) == estimate_request(
        asked("The old mill is deep."), GPT
    )
    assert estimate_request(asked(sealed), GPT) > 20


def test_values_that_are_no_json_do_not_hinder_an_estimate() -> None:
    use = ToolUse("call_1", "depth", {"water": object()})
    assert estimate_request(asked(use), GPT) > MESSAGE_TOKENS


@pytest.mark.parametrize(
    ("width", "height", "gpt", "claude", "gemini"),
    [
        (200, 200, 49, 54, 258),
        (1024, 1024, 1024, 1399, 4 * 258),
        (1000, 300, 320, 400, 2 * 258),
        (4000, 4000, 1536, 4784, 36 * 258),
    ],
)
def test_a_picture_costs_what_its_maker_says(
    width: int, height: int, gpt: int, claude: int, gemini: int
) -> None:
    picture = image(png(width, height))
    for model, tokens in ((GPT, gpt), (CLAUDE, claude), (GEMINI, gemini)):
        wrapped = asked(picture)
        assert estimate_request(wrapped, model) == tokens + MESSAGE_TOKENS


@pytest.mark.parametrize(
    "data",
    [
        png(640, 480),
        b"GIF89a" + struct.pack("<HH", 640, 480) + bytes(64),
        jpeg(640, 480),
        jpeg(640, 480, thumbnail=60_000),
        webp(b"VP8 ", bytes(3) + b"\x9d\x01\x2a" + struct.pack("<HH", 640, 480)),
        webp(b"VP8L", b"\x2f" + struct.pack("<I", 639 | 479 << 14)),
        webp(b"VP8X", bytes(4) + (639).to_bytes(3, "little") + (479).to_bytes(3, "little")),
    ],
    ids=["png", "gif", "jpeg", "jpeg with a thumbnail", "webp", "lossless webp", "extended webp"],
)
def test_the_size_is_read_from_every_format(data: bytes) -> None:
    assert estimate_request(asked(image(data)), GPT) == 20 * 15 + MESSAGE_TOKENS


@pytest.mark.parametrize(
    "picture",
    [
        Image(url="https://example.org/cat.png"),
        Image(data="not base64!", mime_type="image/png"),
        Image(data=base64.b64encode(b"\x89PNG").decode(), mime_type="image/png"),
        Image(data=base64.b64encode(b"\xff\xd8\xff").decode(), mime_type="image/jpeg"),
        Image(data=base64.b64encode(b"\xff\xd8" + b"\xff" * 500).decode(), mime_type="image/jpeg"),
        Image(data=base64.b64encode(webp(b"VP9 ", b"")).decode(), mime_type="image/webp"),
        Image(data=base64.b64encode(b"tiff" * 20).decode(), mime_type="image/tiff"),
    ],
    ids=["link", "no base64", "cut", "cut jpeg", "padding", "new webp", "unknown"],
)
def test_a_picture_of_unknown_size_counts_as_a_usual_one(picture: Image) -> None:
    assert estimate_request(asked(picture), GPT) == 1024 + MESSAGE_TOKENS
    # A reservation takes it for a large one.
    assert reserve_tokens(asked(picture), GPT) == 1536 * 1.5 + MESSAGE_TOKENS


def test_a_sound_costs_by_its_seconds() -> None:
    head = b"RIFF\0\0\0\0WAVEfmt " + struct.pack("<IHHII", 16, 1, 1, 16_000, 32_000)
    spoken = audio(head + bytes(32_000 * 60 - len(head)))
    assert estimate_request(asked(spoken), GEMINI) == 60 * 32 + MESSAGE_TOKENS
    assert estimate_request(asked(spoken), GPT) == 60 * 10 + MESSAGE_TOKENS
    packed = Audio(data=base64.b64encode(b"ID3" + bytes(16_000 * 30 - 3)).decode(), mime_type="a/b")
    assert estimate_request(asked(packed), GEMINI) == 30 * 32 + MESSAGE_TOKENS
    # Speech may be packed four times as tightly.
    assert reserve_tokens(asked(packed), GEMINI) == 120 * 32 * 1.5 + MESSAGE_TOKENS


def test_pictures_inside_a_result_are_found() -> None:
    result = ToolResult("call_1", (image(png(320, 320)),))
    assert estimate_request(asked(result), GPT) > 100


def test_texts_are_counted_once_for_all_models_and_not_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    request = asked(QUESTION, image(png(320, 320)), system_prompt="Be exact.", tools=(TOOL,))
    each = {model: estimate_request(request, model) for model in (GPT, CLAUDE, GEMINI)}
    counted: list[str] = []

    def counting(text: str) -> Count:
        counted.append(text)
        return measure(text)

    monkeypatch.setattr(estimating, "measure", counting)
    estimates = Estimates(request)
    assert counted == []
    assert {model: estimates.of(model) for model in (*each, *each)} == each
    assert len(counted) == 3


@pytest.mark.parametrize("model", [GPT, CLAUDE, GEMINI])
def test_a_reservation_is_never_below_the_estimate(model: str) -> None:
    for parts in ((QUESTION,), (image(png(800, 600)),), ("Мельница стоит.",), ("a",)):
        request = asked(*parts, system_prompt="Be exact.", tools=(TOOL,))
        assert reserve_tokens(request, model) >= estimate_request(request, model)


def test_an_upper_bound_is_above_a_reservation_in_every_part() -> None:
    picture, opus = image(png(1024, 1024)), audio(bytes(15_000), mime_type="audio/ogg")
    for model in (GPT, CLAUDE, GEMINI):
        for request in (
            asked(QUESTION),
            asked(picture),
            asked(opus),
            asked(QUESTION, tools=(TOOL,)),
            asked(QUESTION, output_schema=OutputSchema({"type": "object"})),
        ):
            assert upper_tokens(request, model) > reserve_tokens(request, model)
            measured = measure_request(request)
            assert upper_tokens(request, model, measured) == upper_tokens(request, model)


def test_sound_may_be_as_long_as_its_format_allows() -> None:
    def heard(mime_type: str, data: bytes) -> int:
        silent = upper_tokens(asked(QUESTION), GPT)
        return upper_tokens(asked(QUESTION, audio(data, mime_type=mime_type)), GPT) - silent

    data = bytes(12_000)
    # The name of the format is the caller's: all that cannot be measured counts at 8 kbit/s.
    assert heard("audio/mpeg", data) == 12 * 10 * 1.5 + PART
    assert heard("audio/ogg; codecs=opus", data) == 12 * 10 * 1.5 + PART


@pytest.mark.parametrize(
    ("size", "tokens"), [((512, 512), 8500), ((1024, 1024), 25_501), ((4096, 2048), 36_835)]
)
def test_gpt_4o_mini_counts_pictures_by_dear_tiles(size: tuple[int, int], tokens: int) -> None:
    mini = "gpt-4o-mini"
    assert (
        estimate_request(asked(image(png(*size))), mini) - estimate_request(asked(), mini) == tokens
    )
