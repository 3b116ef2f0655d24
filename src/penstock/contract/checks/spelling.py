"""Misspelled names of options: what was probably meant."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Coroutine, Iterable
from types import FunctionType
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast

import msgspec

from penstock.contract.errors import Problem

P = ParamSpec("P")
R = TypeVar("R")
C = TypeVar("C")
_LONGEST = 64
_IS_COROUTINE = 0x80
_TAKES_ANY_NAME = 0x08
_ELSEWHERE = {
    "costPriority": "cost",
    "headers": "http_headers",
    "intelligencePriority": "intelligence",
    "max_completion_tokens": "max_tokens",
    "max_output_tokens": "max_tokens",
    "reasoning_effort": "reasoning_level",
    "response_format": "output_schema",
    "speedPriority": "speed",
    "stop": "stop_sequences",
    "system": "system_prompt",
}
"""What other APIs call options of ours."""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """`; did you mean temperature?`, or nothing where no known name is near."""
    # Only here: an error pays for it, and not the import.
    import difflib

    names = [each for each in known if each != "self" and not each.startswith("_")]
    there = _ELSEWHERE.get(name)
    near = [there] if there in names else difflib.get_close_matches(name[:_LONGEST], names, 1)
    return f"; did you mean {near[0]}?" if near else ""


def list_known(names: Iterable[str], what: str) -> str:
    """`there are: a, b`, or `there are no keys`."""
    known = ", ".join(names)
    return f"there are: {known}" if known else f"there are no {what}"


def unknown_options(given: Iterable[str], known: Collection[str]) -> list[Problem]:
    """A problem for each name that is not known, in the order given."""
    return [
        Problem(name, f"there is no such option{did_you_mean(name, known)}")
        for name in given
        if name not in known
    ]


def suggests_names(function: Callable[P, R]) -> Callable[P, R]:
    """Let the TypeError for an unknown keyword argument say which one was probably meant."""
    code = function.__code__
    names: tuple[str, ...] = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    called = function.__qualname__.removesuffix(".__init__").rpartition(".")[2]

    def check(given: Iterable[str]) -> None:
        refuse_unknown(f"{called}()", given, names)

    if code.co_flags & _IS_COROUTINE:
        awaited = cast("Callable[P, Coroutine[Any, Any, Any]]", function)

        @functools.wraps(function)
        async def answer(*args: P.args, **kwargs: P.kwargs) -> Any:
            check(kwargs)
            return await awaited(*args, **kwargs)

        return cast("Callable[P, R]", answer)

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        check(kwargs)
        return function(*args, **kwargs)

    return call


def methods_suggest_names(cls: type[C]) -> type[C]:
    """Do so for all public methods of a class that name their arguments."""
    for name, value in list(vars(cls).items()):
        if name.startswith("_") or not isinstance(value, FunctionType):
            continue
        if hasattr(value, "__wrapped__") or value.__code__.co_flags & _TAKES_ANY_NAME:
            continue
        if value.__code__.co_argcount + value.__code__.co_kwonlyargcount > 1:
            setattr(cls, name, suggests_names(value))
    return cls


class NameSuggesting(type(msgspec.Struct)):
    """The metaclass of structs that people write: an unknown field names the nearest one."""

    if not TYPE_CHECKING:  # a type checker knows the fields by themselves

        def __call__(cls, *args: Any, **kwargs: Any) -> Any:
            """Make one; the lookup costs only what is wrong already."""
            try:
                return super().__call__(*args, **kwargs)
            except TypeError:
                refuse_unknown(cls.__name__, kwargs, cls.__struct_fields__)
                raise


def refuse_unknown(where: str, given: Iterable[str], known: Collection[str]) -> None:
    """Raise TypeError for the first name that is not known."""
    for name in given:
        if name not in known:
            raise _unexpected(where, name, known)


def _unexpected(where: str, name: str, known: Iterable[str]) -> TypeError:
    return TypeError(
        f"{where} got an unexpected keyword argument {name!r}{did_you_mean(name, known)}"
    )
