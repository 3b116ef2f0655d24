"""The official `openai` package, without an event loop."""

import json
from collections.abc import Mapping
from typing import Any, Literal

import harness
import openai
import pydantic
from openai import OpenAI

TOOL: Any = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather in a city",
        "parameters": harness.CITY_SCHEMA,
        "strict": True,
    },
}


class City(pydantic.BaseModel):
    name: Literal["Lima", "Rome"]
    people: int


def client(ask: harness.Question) -> OpenAI:
    return OpenAI(base_url=f"{ask.url}/v1", api_key="none", max_retries=0)


def said(text: str, system: str = "") -> list[Any]:
    messages = [{"role": "user", "content": text}]
    return [{"role": "system", "content": system}, *messages] if system else messages


def text(ask: harness.Question) -> Mapping[str, Any]:
    with client(ask) as sdk:
        api: Any = sdk.chat.completions
        answer = api.create(
            model=ask.model,
            messages=said(harness.HELLO, harness.SYSTEM),
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
    with (
        client(ask) as sdk,
        sdk.chat.completions.create(
            model=ask.model,
            messages=said(harness.COUNT),
            max_tokens=ask.max_tokens,
            stream=True,
            stream_options={"include_usage": True},
        ) as chunks,
    ):
        for chunk in chunks:
            texts += [choice.delta.content for choice in chunk.choices if choice.delta.content]
            if chunk.usage is not None:
                tokens = [chunk.usage.prompt_tokens, chunk.usage.completion_tokens]
    return {"texts": texts, "tokens": tokens}


def conversation(ask: harness.Question) -> Mapping[str, Any]:
    messages, texts = list[Any](), list[Any]()
    with client(ask) as sdk:
        for question in (harness.HELLO, harness.AGAIN):
            messages += said(question)
            answer = sdk.chat.completions.create(model=ask.model, messages=messages)
            messages.append(answer.choices[0].message)
            texts.append(answer.choices[0].message.content)
    return {"texts": texts}


def cancel(ask: harness.Question) -> Mapping[str, Any]:
    with (
        client(ask) as sdk,
        sdk.chat.completions.create(
            model=ask.model, messages=said(harness.COUNT), stream=True
        ) as chunks,
    ):
        texts = (choice.delta.content for chunk in chunks for choice in chunk.choices)
        return {"texts": [next(text for text in texts if text)]}


def tools(ask: harness.Question) -> Mapping[str, Any]:
    messages, calls = said(harness.WEATHER), list[Any]()
    with client(ask) as sdk:
        while True:
            answer = _asked(sdk, ask, messages)
            made = answer.tool_calls or ()
            messages.append(answer)
            for call in made:
                arguments = json.loads(call.function.arguments)
                calls.append({"name": call.function.name, "arguments": arguments})
                result = harness.weather(**arguments)
                messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
            if not made:
                return {"calls": calls, "text": answer.content}


def _asked(sdk: OpenAI, ask: harness.Question, messages: list[Any]) -> Any:
    api: Any = sdk.chat.completions
    fields: Any = {"model": ask.model, "messages": messages, "tools": [TOOL]}
    if not ask.stream:
        return api.create(**fields).choices[0].message
    with api.stream(**fields) as events:
        return events.get_final_completion().choices[0].message


def structured(ask: harness.Question) -> Mapping[str, Any]:
    with client(ask) as sdk:
        answer = sdk.chat.completions.parse(
            model=ask.model, messages=said(harness.CITY), response_format=City
        )
    parsed = answer.choices[0].message.parsed
    assert parsed is not None
    return {"value": parsed.model_dump()}


def embeddings(ask: harness.Question) -> Mapping[str, Any]:
    with client(ask) as sdk:
        answer = sdk.embeddings.create(model=ask.model, input=ask.texts)
    return {"vectors": [each.embedding for each in answer.data]}


def models(ask: harness.Question) -> Mapping[str, Any]:
    with client(ask) as sdk:
        return {"models": [model.id for model in sdk.models.list()]}


def describe(error: Exception) -> harness.Failure:
    response = error.response if isinstance(error, openai.APIStatusError) else None
    return harness.failure_of(
        error,
        None if response is None else response.status_code,
        None if response is None else response.headers.get("retry-after"),
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
            "models": models,
        },
        describe,
    )
