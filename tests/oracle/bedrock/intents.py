"""What somebody may want of Bedrock, in Penstock's words and in those of Amazon's client."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from penstock import Reasoning, Text, ToolChoice, ToolDefinition, ToolResult, assistant, user
from penstock.contract.options import OutputSchema
from tests.oracle.bedrock.wishes import (
    ARN,
    CALL_BLOCKS,
    CALLS,
    CLOCK,
    CLOCK_SPEC,
    NOVA,
    OLD,
    OPUS,
    POINT,
    RESULT_BLOCKS,
    RESULTS,
    SCHEMA,
    SONNET,
    SPEC,
    USE,
    USE_BLOCK,
    WEATHER,
    Intent,
    b64,
    fields,
    history,
    intent,
    output,
    picture,
    picture_block,
    sound,
    sound_block,
    thought,
    told,
    tools,
    turns,
)

INTENTS: tuple[Intent, ...] = (
    intent("text"),
    intent("a colon in the model's id", model=NOVA),
    intent("an ARN as the model", model=ARN),
    intent("unicode", user("héllo 👩‍👩‍👧 \u2028"), say=turns([{"text": "héllo 👩‍👩‍👧 \u2028"}])),
    intent("system", system_prompt="Be brief.", official={"system": [{"text": "Be brief."}]}),
    intent("temperature", temperature=0.25, limit={"temperature": 0.25}),
    intent("temperature 0", temperature=0.0, limit={"temperature": 0.0}),
    intent("temperature 1", temperature=1.0, limit={"temperature": 1.0}),
    intent("max tokens", max_tokens=4096),
    intent("stop", stop_sequences=("END", "\n\n"), limit={"stopSequences": ["END", "\n\n"]}),
    intent(
        "history",
        user("My name is Ada."),
        assistant("Hello."),
        user("My name?"),
        say=turns([{"text": "My name is Ada."}], [{"text": "Hello."}], [{"text": "My name?"}]),
    ),
    intent("two texts", user("a", "b"), say=turns([{"text": "a"}, {"text": "b"}])),
    intent("turns of one role", user("a"), user("b"), say=turns([{"text": "a"}, {"text": "b"}])),
    intent(
        "prefill",
        user("Name?"),
        assistant("My name is"),
        model=OLD,
        say=turns([{"text": "Name?"}], [{"text": "My name is"}]),
    ),
    *(
        intent(
            f"a {kind} picture",
            user("What?", picture(kind=kind)),
            say=turns([{"text": "What?"}, picture_block(kind)]),
        )
        for kind in ("png", "jpeg", "gif", "webp")
    ),
    *(
        intent(
            f"a sound of {kind}",
            user("What?", sound(kind)),
            say=turns([{"text": "What?"}, sound_block(name)]),
        )
        for kind, name in (
            ("audio/wav", "wav"),
            ("audio/mpeg", "mp3"),
            ("audio/flac", "flac"),
            ("audio/ogg", "ogg"),
            ("audio/mp4", "mp4"),
            ("audio/webm", "webm"),
        )
    ),
    intent("a tool", tools=(WEATHER,), official=tools(SPEC)),
    intent("two tools", tools=(WEATHER, CLOCK), official=tools(SPEC, CLOCK_SPEC)),
    intent(
        "a strict tool",
        tools=(ToolDefinition("weather", "The weather.", SCHEMA, strict=True),),
        official=tools({"toolSpec": {**SPEC["toolSpec"], "strict": True}}),
    ),
    intent(
        "tool choice auto",
        tools=(WEATHER,),
        tool_choice=ToolChoice("auto"),
        official=tools(SPEC, choice={"auto": {}}),
    ),
    intent(
        "tool choice required",
        tools=(WEATHER,),
        tool_choice=ToolChoice("required"),
        official=tools(SPEC, choice={"any": {}}),
    ),
    intent(
        "one tool is forced",
        tools=(WEATHER, CLOCK),
        tool_choice=ToolChoice.tool("weather"),
        official=tools(SPEC, CLOCK_SPEC, choice={"tool": {"name": "weather"}}),
    ),
    intent("tools are forbidden", tools=(WEATHER,), tool_choice=ToolChoice("none")),
    intent(
        "tools are forbidden after calls",
        *history(Text("Sun")),
        tools=(WEATHER,),
        tool_choice=ToolChoice("none"),
        say=told({"text": "Sun"}),
        official=tools(SPEC),
    ),
    intent(
        "a tool's result",
        *history(Text("Sun")),
        tools=(WEATHER,),
        say=told({"text": "Sun"}),
        official=tools(SPEC),
    ),
    intent(
        "a tool's failure",
        *history(Text("down"), failed=True),
        tools=(WEATHER,),
        say=told({"text": "down"}, status="error"),
        official=tools(SPEC),
    ),
    intent(
        "a structured result",
        *history(structured_content={"sun": True}),
        tools=(WEATHER,),
        say=told({"json": {"sun": True}}),
        official=tools(SPEC),
    ),
    intent(
        "a picture in a result",
        *history(Text("Look:"), picture()),
        tools=(WEATHER,),
        say=told({"text": "Look:"}, picture_block()),
        official=tools(SPEC),
    ),
    intent("an empty result", *history(), tools=(WEATHER,), say=told(), official=tools(SPEC)),
    intent(
        "parallel calls and results",
        user("Both?"),
        assistant("Let me look.", *CALLS),
        user(*RESULTS),
        tools=(WEATHER, CLOCK),
        say=turns([{"text": "Both?"}], [{"text": "Let me look."}, *CALL_BLOCKS], RESULT_BLOCKS),
        official=tools(SPEC, CLOCK_SPEC),
    ),
    intent(
        "results, then more text",
        *history(Text("Sun")),
        user("And now?"),
        tools=(WEATHER,),
        say=[
            *told({"text": "Sun"})[:2],
            {
                "role": "user",
                "content": [*told({"text": "Sun"})[2]["content"], {"text": "And now?"}],
            },
        ],
        official=tools(SPEC),
    ),
    intent(
        "thinking goes back",
        user("Weather?"),
        assistant(Reasoning("Hm.", signature="c2ln"), USE),
        user(ToolResult("tooluse_1", (Text("Sun"),))),
        tools=(WEATHER,),
        say=[
            {"role": "user", "content": [{"text": "Weather?"}]},
            {"role": "assistant", "content": [thought("c2ln"), USE_BLOCK]},
            told({"text": "Sun"})[2],
        ],
        official=tools(SPEC),
    ),
    intent(
        "redacted thinking goes back",
        user("a"),
        assistant(Reasoning(signature=b64(b"\x01\x02"), redacted=True), "b"),
        user("c"),
        say=turns(
            [{"text": "a"}],
            [{"reasoningContent": {"redactedContent": b"\x01\x02"}}, {"text": "b"}],
            [{"text": "c"}],
        ),
    ),
    intent("a schema", output_schema=OutputSchema(SCHEMA), official=output(SCHEMA)),
    intent(
        "a schema with a name",
        output_schema=OutputSchema(SCHEMA, "place", "A place."),
        official=output(SCHEMA, name="place", description="A place."),
    ),
    intent(
        "effort",
        reasoning_level="med",
        official={"outputConfig": {"effort": "medium"}},
    ),
    intent(
        "a schema and effort",
        output_schema=OutputSchema(SCHEMA),
        reasoning_level="low",
        official={"outputConfig": {**output(SCHEMA)["outputConfig"], "effort": "low"}},
    ),
    intent(
        "Claude thinks hard",
        model=SONNET,
        reasoning_level="high",
        official={"outputConfig": {"effort": "high"}, **fields(thinking={"type": "adaptive"})},
    ),
    intent(
        "Claude does not think",
        model=SONNET,
        reasoning_level="none",
        official=fields(thinking={"type": "disabled"}),
    ),
    intent(
        "Claude that always thinks",
        model=OPUS,
        reasoning_level="none",
        official={"outputConfig": {"effort": "low"}},
    ),
    intent(
        "Claude thinks within a budget",
        model=OLD,
        max_tokens=20_000,
        reasoning_level="med",
        official=fields(thinking={"type": "enabled", "budget_tokens": 4096}),
    ),
    intent(
        "Nova 2 thinks",
        model="us.amazon.nova-2-lite-v1:0",
        reasoning_level="low",
        official=fields(reasoningConfig={"type": "enabled", "maxReasoningEffort": "low"}),
    ),
    intent(
        "gpt-oss thinks",
        model="openai.gpt-oss-120b-1:0",
        reasoning_level="high",
        official=fields(reasoning_effort="high"),
    ),
    intent(
        "a cached prompt",
        model=SONNET,
        metadata={"cache": True},
        system_prompt="Be brief.",
        tools=(WEATHER,),
        say=turns([{"text": "Hi"}, POINT]),
        official={"system": [{"text": "Be brief."}, POINT], **tools(SPEC, POINT)},
    ),
    intent(
        "a cached prompt of Nova",
        model=NOVA,
        metadata={"cache": True},
        system_prompt="Be brief.",
        tools=(WEATHER,),
        say=turns([{"text": "Hi"}, POINT]),
        official={"system": [{"text": "Be brief."}, POINT], **tools(SPEC)},
    ),
    intent("a cache hint for a model without", metadata={"cache": True}),
    intent(
        "everything at once",
        user("What?", picture()),
        model=OLD,
        system_prompt="Be brief.",
        temperature=0.5,
        stop_sequences=("END",),
        tools=(WEATHER,),
        tool_choice=ToolChoice("required"),
        say=turns([{"text": "What?"}, picture_block()]),
        limit={"temperature": 0.5, "stopSequences": ["END"]},
        official={"system": [{"text": "Be brief."}], **tools(SPEC, choice={"any": {}})},
    ),
)


@dataclass(frozen=True, slots=True)
class Invocation:
    """An embedding call in both languages."""

    id: str
    model: str
    texts: tuple[str, ...]
    body: dict[str, Any]
    dimensions: int | None = None


TITAN = "amazon.titan-embed-text-v2:0"
INVOCATIONS: tuple[Invocation, ...] = (
    Invocation("titan", TITAN, ("a",), {"inputText": "a", "normalize": True}),
    Invocation(
        "titan with dimensions",
        TITAN,
        ("a",),
        {"inputText": "a", "normalize": True, "dimensions": 256},
        256,
    ),
    Invocation("titan 1", "amazon.titan-embed-text-v1", ("a",), {"inputText": "a"}),
    Invocation(
        "cohere 3",
        "cohere.embed-english-v3",
        ("a", "b"),
        {"texts": ["a", "b"], "input_type": "search_document"},
    ),
    Invocation(
        "cohere 4",
        "eu.cohere.embed-v4:0",
        ("a", "b"),
        {
            "texts": ["a", "b"],
            "input_type": "search_document",
            "embedding_types": ["float"],
            "output_dimension": 512,
        },
        512,
    ),
)
