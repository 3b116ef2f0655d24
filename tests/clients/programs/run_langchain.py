"""LangChain's `ChatOpenAI` and `OpenAIEmbeddings`."""

# The packages are installed in an environment of their own, where no type checker looks.
# pyright: reportMissingImports=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownParameterType=false

from collections.abc import Mapping
from typing import Any, Literal

import harness
import openai
import pydantic
from langchain_core.messages import HumanMessage, SystemMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI, OpenAIEmbeddings


class City(pydantic.BaseModel):
    name: Literal["Lima", "Rome"]
    people: int


weather = tool(harness.weather)


def chat(ask: harness.Question, **fields: Any) -> ChatOpenAI:
    return ChatOpenAI(
        model=ask.model,
        base_url=f"{ask.url}/v1",
        api_key="none",
        max_retries=0,
        stream_usage=True,
        use_responses_api=ask.via == "responses",
        **fields,
    )


def tokens_of(message: Any) -> list[int]:
    usage = message.usage_metadata
    return [usage["input_tokens"], usage["output_tokens"]]


def text(ask: harness.Question) -> Mapping[str, Any]:
    model = chat(
        ask,
        max_tokens=ask.max_tokens,
        temperature=harness.TEMPERATURE,
        **ask.fields,
    )
    answer = model.invoke([SystemMessage(harness.SYSTEM), HumanMessage(harness.HELLO)])
    return {"text": answer.text, "tokens": tokens_of(answer)}


def stream(ask: harness.Question) -> Mapping[str, Any]:
    chunks = list(chat(ask, max_tokens=ask.max_tokens).stream(harness.COUNT))
    whole = chunks[0]
    for chunk in chunks[1:]:
        whole += chunk
    return {"texts": [c.text for c in chunks if c.text], "tokens": tokens_of(whole)}


def conversation(ask: harness.Question) -> Mapping[str, Any]:
    messages, texts = list[Any](), list[Any]()
    for question in (harness.HELLO, harness.AGAIN):
        messages.append(HumanMessage(question))
        messages.append(chat(ask).invoke(messages))
        texts.append(messages[-1].text)
    return {"texts": texts}


def cancel(ask: harness.Question) -> Mapping[str, Any]:
    chunks = chat(ask).stream(harness.COUNT)
    first = next(chunk.text for chunk in chunks if chunk.text)
    chunks.close()
    return {"texts": [first]}


def tools(ask: harness.Question) -> Mapping[str, Any]:
    model = chat(ask).bind_tools([weather])
    messages, calls = list[Any]([HumanMessage(harness.WEATHER)]), list[Any]()
    while True:
        if ask.stream:
            first, *rest = model.stream(messages)
            answer = sum(rest, first)
        else:
            answer = model.invoke(messages)
        messages.append(answer)
        for call in answer.tool_calls:
            calls.append({"name": call["name"], "arguments": call["args"]})
            messages.append(weather.invoke(call))
        if not answer.tool_calls:
            return {"calls": calls, "text": answer.text}


def structured(ask: harness.Question) -> Mapping[str, Any]:
    model = chat(ask).with_structured_output(City, method="json_schema")
    return {"value": model.invoke(harness.CITY).model_dump()}


def embeddings(ask: harness.Question) -> Mapping[str, Any]:
    model = OpenAIEmbeddings(
        model=ask.model,
        base_url=f"{ask.url}/v1",
        api_key="none",
        max_retries=0,
        # Otherwise it sends the numbers of OpenAI's own tokenizer, which it would download first.
        check_embedding_ctx_length=False,
    )
    return {"vectors": model.embed_documents(ask.texts)}


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
        },
        describe,
    )
