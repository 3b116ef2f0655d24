"""A conversation with a model, and the commands that change it."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import msgspec

from penstock.cli.errors import wrong
from penstock.contract.errors import ConfigurationError
from penstock.contract.exchange import SamplingRequest
from penstock.contract.messages import Message, assistant, user
from penstock.engine.engine import Engine

_COMMAND = re.compile(r"/([a-z]+)(?:\s+(.*))?", re.DOTALL)

HELP = """\
/reset         forget the conversation
/model NAME    go on with another model; alone: show which one answers
/system TEXT   give instructions that come first; alone: show them; "off" removes them
/save FILE     write the conversation as JSON
/exit          leave; so does Ctrl-D
Ctrl-C stops an answer. Everything else is said to the model."""


class Leave(Exception):
    """The person wants to go."""


class Conversation:
    """Who is asked, how, and what has been said."""

    def __init__(
        self,
        engine: Engine,
        *,
        model: str | None,
        system: str | None,
        max_tokens: int,
        temperature: float | None,
    ) -> None:
        """Raises ModelNotFound, or what is wrong with the provider, before a word is said."""
        self.messages: list[Message] = []
        self._engine = engine
        self._model = model
        self._system = system
        self._max_tokens = max_tokens
        self._temperature = temperature
        self._saved: set[Path] = set()
        self._check(model)

    @property
    def who(self) -> str:
        """The model's name and its targets."""
        targets = ", ".join(map(str, self._engine.targets(self._model)))
        name = self._model or self._engine.config.default_model or ""
        return name if name == targets else f"{name} ({targets})"

    def request(self, text: str) -> SamplingRequest:
        """The request that says this next."""
        return SamplingRequest(
            messages=(*self.messages, user(text)),
            max_tokens=self._max_tokens,
            model=self._model,
            system_prompt=self._system,
            temperature=self._temperature,
        )

    def keep(self, text: str, answer: Message | str) -> None:
        """One more exchange; without any answer it did not happen."""
        turn = assistant(answer) if isinstance(answer, str) else answer
        if turn.text or turn.tool_uses:
            self.messages += [user(text), turn]

    def command(self, line: str) -> str | None:
        """What a command answers; None when the line is no command. Raises Leave."""
        found = _COMMAND.fullmatch(line.strip())
        if found is None:
            return None
        name, argument = found[1], (found[2] or "").strip()
        commands: dict[str, Callable[[str], str]] = {
            "help": lambda _: HELP,
            "reset": self._reset,
            "model": self._change_model,
            "system": self._change_system,
            "save": self._save,
            "exit": self._leave,
            "quit": self._leave,
        }
        if name not in commands:
            raise wrong("", f"there is no /{name}; /help lists the commands")
        return commands[name](argument)

    def _reset(self, _: str) -> str:
        self.messages.clear()
        return "forgotten; a new conversation begins"

    def _change_model(self, name: str) -> str:
        if name:
            self._check(name)
            self._model = name
        return f"answers come from {self.who}"

    def _change_system(self, text: str) -> str:
        if text:
            self._system = None if text == "off" else text
        return f"instructions: {self._system}" if self._system else "there are no instructions"

    def _save(self, name: str) -> str:
        if not name:
            raise wrong("", "name a file: /save chat.json")
        path = Path(name).expanduser().absolute()
        document = {
            "model": self._model or self._engine.config.default_model,
            "system_prompt": self._system,
            "messages": self.messages,
        }
        data = msgspec.json.format(msgspec.json.encode(document), indent=2)
        try:
            with path.open("wb" if path in self._saved else "xb") as file:
                file.write(data + b"\n")
        except FileExistsError as error:
            raise ConfigurationError(f"{name} is already there; choose another name") from error
        except OSError as error:
            raise ConfigurationError(
                f"cannot write {name}: {error.strerror}; choose another place"
            ) from error
        self._saved.add(path)
        return f"saved {len(self.messages)} messages to {name}"

    def _leave(self, _: str) -> str:
        raise Leave

    def _check(self, model: str | None) -> None:
        """The model has a target whose provider can be made."""
        problem: ConfigurationError | None = None
        for target in self._engine.targets(model):
            try:
                self._engine.provider(target.provider)
            except ConfigurationError as error:
                problem = problem or error
            else:
                return
        if problem is not None:
            raise problem
