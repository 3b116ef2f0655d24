"""A conversation: turns with a model that are remembered."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator
from typing import Literal

from penstock.contract.events import GeneratorEvent
from penstock.contract.exchange import Metadata
from penstock.contract.messages import Message
from penstock.contract.requests import Messages, read_messages
from penstock.generators.content import Prompt, StringGenerator
from penstock.generators.contexts import MessageType, PromptContextProvider
from penstock.generators.stream import GeneratorStream, Settled


class Conversation:
    """Turns with a model that are remembered, with tools that run in between.

    A turn that fails, is stopped or has an empty answer changes nothing: it can be sent again. One
    turn runs at a time.
    """

    def __init__(self, generator: StringGenerator, history: Messages = ()) -> None:
        """Made by `penstock.conversation()` and `engine.conversation()`.

        Raises InvalidRequest for a bad history.
        """
        self._generator = generator
        self._messages = read_messages("history", history)
        self._running = False

    @property
    def messages(self) -> tuple[Message, ...]:
        """All turns so far, calls of tools and their results included."""
        return self._messages

    def add_prompt_context(
        self, message_type: MessageType | Literal["system", "human", "assistant"], content: str
    ) -> None:
        """Send this text before all turns from now on; it is no part of `messages`."""
        self._generator.add_prompt_context(message_type, content)

    def add_prompt_context_provider(self, provider: PromptContextProvider) -> None:
        """Call `provider.generate_context()` for each turn, as generators do."""
        self._generator.add_prompt_context_provider(provider)

    async def send(self, prompt: Prompt) -> tuple[str, Metadata]:
        """The answer to the next turn, and what there is to know about it."""
        async with contextlib.aclosing(self._turn(prompt, streamed=False)) as events:
            async for event in events:
                if isinstance(event, Settled):
                    return event.value, event.result.metadata
        raise RuntimeError("a turn ended without an answer")

    def stream(self, prompt: Prompt) -> GeneratorStream[str]:
        """The answer to the next turn while it is made; the turn counts when its end is read."""
        return GeneratorStream(self._turn(prompt, streamed=True))

    def clear(self) -> None:
        """Forget all turns; prompt contexts stay."""
        self._messages = ()

    async def _turn(
        self, prompt: Prompt, *, streamed: bool
    ) -> AsyncGenerator[GeneratorEvent | Settled[str], None]:
        if self._running:
            raise RuntimeError("the conversation is still answering another turn")
        self._running = True
        try:
            events = self._generator.run(prompt, self._messages, streamed=streamed)
            async with contextlib.aclosing(events):
                async for event in events:
                    if isinstance(event, Settled) and event.turns[-1].content:
                        self._messages += event.turns
                    yield event
        finally:
            self._running = False
