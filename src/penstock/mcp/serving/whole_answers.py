"""A tool out of a function that gives its answer in pieces."""

from __future__ import annotations

import functools
import inspect
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import aclosing
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")
R = TypeVar("R")


def gathered(
    function: Callable[P, AsyncGenerator[T, None]], collect: Callable[[list[Any]], R]
) -> Callable[P, Coroutine[Any, Any, R]]:
    """The function that gives what `collect` makes of all pieces."""

    @functools.wraps(function)
    async def call(*args: P.args, **kwargs: P.kwargs) -> R:
        async with aclosing(function(*args, **kwargs)) as pieces:
            return collect([piece async for piece in pieces])

    returned = inspect.signature(collect, eval_str=True).return_annotation
    signature = inspect.signature(function, eval_str=True).replace(return_annotation=returned)
    call.__signature__ = signature  # type: ignore[attr-defined]
    hints = {name: each.annotation for name, each in signature.parameters.items()}
    call.__annotations__ = {**hints, "return": returned}
    return call
