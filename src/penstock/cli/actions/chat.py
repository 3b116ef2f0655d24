"""The loop of a chat: read a line, stream the answer, and survive Ctrl-C."""

from __future__ import annotations

import sys

from penstock.cli.actions.ask import Printer, speak
from penstock.cli.actions.chat_commands import Conversation, Leave
from penstock.cli.errors import say_error
from penstock.cli.setup.engines import open_engine
from penstock.cli.ui import terminal
from penstock.cli.ui.background_loop import Background
from penstock.cli.ui.line_reader import LineReader
from penstock.contract.errors import ContextLengthExceeded, PenstockError
from penstock.engine.engine import Engine

PROMPT = "you> "


class Chat:
    """One chat at one terminal, or through one pipe."""

    def __init__(
        self,
        engine: Engine,
        conversation: Conversation,
        reader: LineReader,
        background: Background,
    ) -> None:
        """Made by `run`."""
        self._engine = engine
        self._conversation = conversation
        self._reader = reader
        self._background = background

    @classmethod
    def run(
        cls,
        config: str | None,
        *,
        model: str | None,
        system: str | None,
        max_tokens: int,
        temperature: float | None,
    ) -> None:
        """The whole of `penstock chat`."""
        engine = open_engine(config)
        conversation = Conversation(
            engine, model=model, system=system, max_tokens=max_tokens, temperature=temperature
        )
        with Background() as background, LineReader(PROMPT) as reader:
            try:
                cls(engine, conversation, reader, background).talk()
            finally:
                background.run(engine.aclose())

    def talk(self) -> None:
        """Turn after turn until the person leaves, or the pipe ends."""
        if self._reader.interactive:
            terminal.note(f"{self._conversation.who} · /help · Ctrl-C stops · Ctrl-D leaves\n")
        while True:
            try:
                line = self._reader.read()
                if line is None:
                    return
                if not line.strip():
                    continue
                self._take(line)
            except Leave:
                return
            except KeyboardInterrupt:
                if not self._reader.interactive:
                    raise
                terminal.note("\nCtrl-D or /exit leaves")
            except PenstockError as error:
                if not self._reader.interactive:
                    raise
                say_error(error.message + self._advice(error))
            if self._reader.interactive:
                print(file=sys.stderr)

    def _take(self, line: str) -> None:
        answer = self._conversation.command(line)
        if answer is None:
            self._turn(line)
        else:
            terminal.say(answer)

    def _turn(self, text: str) -> None:
        printer = Printer(sys.stdout)
        request = self._conversation.request(text)
        try:
            result = self._background.run(speak(self._engine, request, printer))
        except KeyboardInterrupt:
            printer.end()
            if not self._reader.interactive:
                raise
            self._conversation.keep(text, printer.text)
            terminal.note("stopped")
            return
        except PenstockError:
            if printer.text:
                printer.end()
            raise
        printer.end()
        self._conversation.keep(text, result.message)
        if result.stop_reason == "maxTokens":
            terminal.note("cut off; a higher --max-tokens allows longer answers")

    @staticmethod
    def _advice(error: PenstockError) -> str:
        too_long = isinstance(error, ContextLengthExceeded)
        return "; /reset forgets the conversation" if too_long else ""
