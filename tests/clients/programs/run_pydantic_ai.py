"""`pydantic_ai`: an agent on each of the three APIs that it can speak to the gateway."""

# The package is installed in an environment of its own, where no type checker looks.
# pyright: reportMissingImports=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownParameterType=false

import asyncio
from collections.abc import Mapping
from typing import Any, Literal

import harness
import pydantic
from anthropic import AsyncAnthropic
from openai import AsyncOpenAI
from pydantic_ai import Agent, Embedder, NativeOutput
from pydantic_ai.embeddings.openai import OpenAIEmbeddingModel
from pydantic_ai.messages import ToolCallPart
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider


class City(pydantic.BaseModel):
    name: Literal["Lima", "Rome"]
    people: int


def openai_provider(ask: harness.Question) -> OpenAIProvider:
    client = AsyncOpenAI(base_url=f"{ask.url}/v1", api_key="none", max_retries=0)
    return OpenAIProvider(openai_client=client)


def agent(ask: harness.Question, **fields: Any) -> Agent[Any, Any]:
    if ask.via == "anthropic":
        client = AsyncAnthropic(base_url=ask.url, api_key="none", max_retries=0)
        model = AnthropicModel(ask.model, provider=AnthropicProvider(anthropic_client=client))
    elif ask.via == "responses":
        model = OpenAIResponsesModel(ask.model, provider=openai_provider(ask))
    else:
        model = OpenAIChatModel(ask.model, provider=openai_provider(ask))
    return Agent(model, **fields)


def tokens_of(result: Any) -> list[int]:
    usage = result.usage
    usage = usage() if callable(usage) else usage
    return [usage.input_tokens, usage.output_tokens]


def text(ask: harness.Question) -> Mapping[str, Any]:
    settings = {
        "max_tokens": ask.max_tokens,
        "temperature": harness.TEMPERATURE,
        **ask.fields,
    }
    made = agent(ask, instructions=harness.SYSTEM, model_settings=settings)
    result = asyncio.run(made.run(harness.HELLO))
    return {"text": result.output, "tokens": tokens_of(result)}


def stream(ask: harness.Question) -> Mapping[str, Any]:
    async def run() -> Mapping[str, Any]:
        made = agent(ask, model_settings={"max_tokens": ask.max_tokens})
        async with made.run_stream(harness.COUNT) as result:
            texts = [text async for text in result.stream_text(delta=True, debounce_by=None)]
            return {"texts": texts, "tokens": tokens_of(result)}

    return asyncio.run(run())


def conversation(ask: harness.Question) -> Mapping[str, Any]:
    async def run() -> Mapping[str, Any]:
        made = agent(ask)
        first = await made.run(harness.HELLO)
        second = await made.run(harness.AGAIN, message_history=first.all_messages())
        return {"texts": [first.output, second.output]}

    return asyncio.run(run())


def cancel(ask: harness.Question) -> Mapping[str, Any]:
    async def run() -> Mapping[str, Any]:
        first = asyncio.get_running_loop().create_future()

        async def listen() -> None:
            async with agent(ask).run_stream(harness.COUNT) as result:
                async for text in result.stream_text(delta=True, debounce_by=None):
                    first.set_result(text)

        task = asyncio.create_task(listen())
        text = await first
        task.cancel()
        await asyncio.wait([task])
        return {"texts": [text]}

    return asyncio.run(run())


def tools(ask: harness.Question) -> Mapping[str, Any]:
    async def run() -> Mapping[str, Any]:
        made = agent(ask, tools=[harness.weather])
        if ask.stream:
            async with made.run_stream(harness.WEATHER) as result:
                output = await result.get_output()
        else:
            result = await made.run(harness.WEATHER)
            output = result.output
        calls = [
            {"name": part.tool_name, "arguments": part.args_as_dict()}
            for message in result.all_messages()
            for part in message.parts
            if isinstance(part, ToolCallPart)
        ]
        return {"calls": calls, "text": output}

    return asyncio.run(run())


def structured(ask: harness.Question) -> Mapping[str, Any]:
    made = agent(ask, output_type=NativeOutput(City))
    return {"value": asyncio.run(made.run(harness.CITY)).output.model_dump()}


def embeddings(ask: harness.Question) -> Mapping[str, Any]:
    embedder = Embedder(OpenAIEmbeddingModel(ask.model, provider=openai_provider(ask)))
    result = asyncio.run(embedder.embed_documents(ask.texts))
    return {"vectors": [list(vector) for vector in result.embeddings]}


def describe(error: Exception) -> harness.Failure:
    response = getattr(error.__cause__, "response", None)
    return harness.failure_of(
        error,
        getattr(error, "status_code", None),
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
