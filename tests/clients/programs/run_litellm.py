"""`litellm` as a library: the gateway is an OpenAI, or an Anthropic, at another address."""

# The package is installed in an environment of its own, where no type checker looks.
# pyright: reportMissingImports=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false

import asyncio
import json
from collections.abc import Iterator, Mapping
from typing import Any, Literal

import harness
import litellm
import pydantic

TOOL: Any = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather in a city",
        "parameters": harness.CITY_SCHEMA,
    },
}


class City(pydantic.BaseModel):
    name: Literal["Lima", "Rome"]
    people: int


def address_of(ask: harness.Question) -> dict[str, Any]:
    address = (
        {"model": f"anthropic/{ask.model}", "api_base": ask.url}
        if ask.via == "anthropic"
        else {"model": f"openai/{ask.model}", "api_base": f"{ask.url}/v1"}
    )
    return {**address, "api_key": "none", "max_retries": 0, "num_retries": 0}


def completion(ask: harness.Question, messages: list[Any], **fields: Any) -> Any:
    return litellm.completion(**address_of(ask), messages=messages, **fields)


def said(text: str) -> list[Any]:
    return [{"role": "user", "content": text}]


def text(ask: harness.Question) -> Mapping[str, Any]:
    answer = completion(
        ask,
        [{"role": "system", "content": harness.SYSTEM}, *said(harness.HELLO)],
        max_tokens=ask.max_tokens,
        temperature=harness.TEMPERATURE,
        **ask.fields,
    )
    usage = answer.usage
    return {
        "text": answer.choices[0].message.content,
        "tokens": [usage.prompt_tokens, usage.completion_tokens],
    }


def stream(ask: harness.Question) -> Mapping[str, Any]:
    texts: list[str] = []
    tokens: list[int] = []
    for chunk in completion(
        ask,
        said(harness.COUNT),
        max_tokens=ask.max_tokens,
        stream=True,
        stream_options={"include_usage": True},
    ):
        texts += _texts(chunk)
        usage = getattr(chunk, "usage", None)
        if usage is not None:
            tokens = [usage.prompt_tokens, usage.completion_tokens]
    return {"texts": texts, "tokens": tokens}


def _texts(chunk: Any) -> Iterator[str]:
    return (choice.delta.content for choice in chunk.choices if choice.delta.content)


def conversation(ask: harness.Question) -> Mapping[str, Any]:
    messages, texts = list[Any](), list[Any]()
    for question in (harness.HELLO, harness.AGAIN):
        messages += said(question)
        answer = completion(ask, messages).choices[0].message
        messages.append(answer.model_dump())
        texts.append(answer.content)
    return {"texts": texts}


def cancel(ask: harness.Question) -> Mapping[str, Any]:
    async def run() -> Mapping[str, Any]:
        chunks = await litellm.acompletion(
            **address_of(ask), messages=said(harness.COUNT), stream=True
        )
        async for chunk in chunks:
            if texts := list(_texts(chunk)):
                await chunks.aclose()
                return {"texts": texts}
        raise AssertionError("the stream had no text")

    return asyncio.run(run())


def tools(ask: harness.Question) -> Mapping[str, Any]:
    messages, calls = said(harness.WEATHER), list[Any]()
    while True:
        answer = _asked(ask, messages)
        made = answer.tool_calls or ()
        messages.append(answer.model_dump())
        for call in made:
            arguments = json.loads(call.function.arguments)
            calls.append({"name": call.function.name, "arguments": arguments})
            result = harness.weather(**arguments)
            messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
        if not made:
            return {"calls": calls, "text": answer.content}


def _asked(ask: harness.Question, messages: list[Any]) -> Any:
    answer = completion(ask, messages, tools=[TOOL], stream=ask.stream)
    if ask.stream:
        answer = litellm.stream_chunk_builder(list(answer), messages=messages)
    return answer.choices[0].message


def structured(ask: harness.Question) -> Mapping[str, Any]:
    answer = completion(ask, said(harness.CITY), response_format=City)
    return {"value": City.model_validate_json(answer.choices[0].message.content).model_dump()}


def embeddings(ask: harness.Question) -> Mapping[str, Any]:
    answer = litellm.embedding(
        model=f"openai/{ask.model}", input=ask.texts, api_base=f"{ask.url}/v1", api_key="none"
    )
    return {"vectors": [each["embedding"] for each in answer.data]}


def describe(error: Exception) -> harness.Failure:
    response = getattr(error, "response", None)
    headers = getattr(error, "litellm_response_headers", None) or getattr(response, "headers", {})
    return harness.failure_of(
        error, getattr(error, "status_code", None), headers.get("retry-after")
    )


if __name__ == "__main__":
    harness.serve(
        {
            "text": text,
            "stream": stream,
            "conversation": conversation,
            "cancel": cancel,
            "tools": tools,
            "structured": structured,
            "embeddings": embeddings,
        },
        describe,
    )
