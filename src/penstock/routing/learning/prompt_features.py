"""From the text of a request to its features: once, and without keeping requests waiting."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from penstock.contract.errors import PenstockError
from penstock.routing.learning.features import (
    MOST_CHARACTERS,
    MOST_MEANING,
    FeatureMaker,
    Vector,
    features_name,
    shortened,
)

_REMEMBERED = 512
_log = logging.getLogger(__name__)


class Remote(NamedTuple):
    """A provider's embeddings."""

    name: str
    embed: Callable[[str], Awaitable[Sequence[float]]]
    """Asks for the vector of a text; raises a PenstockError when there is none."""


class Reader:
    """Makes features of texts; a text that comes again is not read again."""

    def __init__(self, maker: FeatureMaker, remote: Remote | None = None) -> None:
        """With `remote`, what a text is about comes from there."""
        self._maker = maker
        self._remote = remote
        self._known: OrderedDict[str, Vector] = OrderedDict()
        self._loaded = False
        self._warned = False

    @property
    def name(self) -> str:
        """What distinguishes these features: those of another name do not compare."""
        return self._maker.name if self._remote is None else features_name(self._remote.name)

    async def prepare(self) -> None:
        """Have the name that stays: where the embedder turns out to be missing, it is another."""
        if self._remote is None and not self._loaded:
            await self._read("")

    async def features(self, text: str) -> Vector:
        """The features of a text."""
        # No more of it is looked at, and no more is remembered: texts may have megabytes.
        text = shortened(text, MOST_CHARACTERS)
        found = self._known.get(text)
        if found is None:
            found = self._known[text] = await self._read(text)
            if len(self._known) > _REMEMBERED:
                self._known.popitem(last=False)
        else:
            self._known.move_to_end(text)
        return found

    async def _read(self, text: str) -> Vector:
        if self._remote is not None:
            return self._maker.vector(text, await self._asked(self._remote, text))
        if self._loaded:
            return self._maker.vector(text)
        # The first text has a table of words to be loaded, which takes too long for the loop.
        vector = await asyncio.to_thread(self._maker.vector, text)
        self._loaded = True
        return vector

    async def _asked(self, remote: Remote, text: str) -> Sequence[float]:
        try:
            return await remote.embed(shortened(text, MOST_MEANING))
        except PenstockError as error:
            # One text without a meaning is still compared by its words and its looks.
            if not self._warned:
                self._warned = True
                _log.warning("routing does without the meaning of some prompts: %s", error)
            return ()
