"""What describes one kind of provider, and where kinds of installed packages are found.

A package adds a kind by an entry point of the group `penstock.providers`: its name is the kind's
name, and its object a `ProviderKind`. Names are read from the installed packages without importing
them; a package is imported when its kind is used.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator, Mapping, Set
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.contract.errors import ConfigurationError
from penstock.contract.ports import Provider

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from penstock.providers.wire.dialect import Dialect

GROUP = "penstock.providers"
_MESSAGE_LIMIT = 300


@dataclass(frozen=True, slots=True)
class ProviderKind:
    """One row: a wire format, where it is spoken, and which variables hold the key."""

    name: str
    title: str
    dialect: str | Dialect | None = None
    """For providers that are reached over HTTP: a dialect of Penstock by its name, such as
    `openai_chat`, or the package's own."""
    local: str | Callable[..., Provider] | None = None
    """For providers that run in this process: what makes one of `name=` and the options given, or
    `module:class` of Penstock."""
    url: str = ""
    key_variables: tuple[str, ...] = ()
    url_variables: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    """The settings that only this kind knows."""
    unasked: bool = True
    """Whether `kind/model` works without any configuration."""
    model: str = ""
    """What a generator uses that names this provider and no model."""
    embedding_model: str = ""
    transcription_model: str = ""
    model_prefixes: tuple[str, ...] = ()
    """How the names of its own models begin, for suggestions."""
    ignored_prefix: str = ""
    """What the provider accepts before the name of a model, and does not count as a part of it."""
    ignored_suffix: str = ""

    @property
    def dialect_name(self) -> str | None:
        """The name of its dialect; None for one in this process."""
        return self.dialect if isinstance(self.dialect, str | None) else self.dialect.name


class Kinds(Mapping[str, ProviderKind]):
    """The kinds of Penstock, and after them those of installed packages, loaded one by one.

    A kind of a package that cannot be loaded raises ConfigurationError when it is looked up.
    """

    def __init__(self, built_in: Mapping[str, ProviderKind], dialects: Set[str]) -> None:
        """`dialects` are the names that a package's own dialect cannot have."""
        self._built_in = built_in
        self._dialects = dialects
        self._loaded: dict[str, ProviderKind] = {}

    def __getitem__(self, name: str) -> ProviderKind:
        kind = self._built_in.get(name) or self._loaded.get(name)
        if kind is None:
            found = installed_kinds().get(name)
            if found is None:
                raise KeyError(name)
            kind = self._loaded[name] = self._checked(_load(found), found[0])
        return kind

    def __contains__(self, name: object) -> bool:
        return name in self._built_in or name in installed_kinds()

    def __iter__(self) -> Iterator[str]:
        yield from self._built_in
        yield from (name for name in sorted(installed_kinds()) if name not in self._built_in)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def _checked(self, kind: object, entry: EntryPoint) -> ProviderKind:
        if not isinstance(kind, ProviderKind):
            raise _unusable(entry, f"{entry.value} is a {type(kind).__name__}, not a ProviderKind")
        if kind.name != entry.name:
            raise _unusable(entry, f"its ProviderKind has the name {kind.name!r}")
        if (kind.dialect is None) == (kind.local is None):
            raise _unusable(entry, "its ProviderKind must have either a dialect or local")
        if isinstance(kind.dialect, str) and kind.dialect not in self._dialects:
            known = ", ".join(sorted(self._dialects))
            raise _unusable(entry, f"there is no dialect {kind.dialect!r}; known: {known}")
        own = kind.dialect.name if not isinstance(kind.dialect, str | None) else ""
        if own.replace("-", "_") in self._dialects:
            raise _unusable(entry, f"its dialect has the name of one of Penstock, {own!r}")
        return kind


class CallableNames(Set[str]):
    """What a target may begin with. Installed packages are searched only for other names."""

    def __init__(self, known: Set[str]) -> None:
        """`known`: configured providers, and kinds of Penstock that need no table."""
        self._known = known

    def __contains__(self, name: object) -> bool:
        return name in self._known or name in installed_kinds()

    def __iter__(self) -> Iterator[str]:
        return iter({*self._known, *installed_kinds()})

    def __len__(self) -> int:
        return len({*self._known, *installed_kinds()})


@functools.cache
def installed_kinds() -> Mapping[str, list[EntryPoint]]:
    """The entry points of installed packages by their names; imports none of them.

    The working folder is left out, even where it is on the import path: a folder may come from a
    stranger.
    """
    # Only here: it takes longer to import than all the rest, and few have such packages.
    from importlib import metadata

    try:
        here = Path.cwd().resolve()
    except OSError:  # it was deleted
        here = None
    folders = [Path(each) for each in sys.path]
    places = [str(each) for each in folders if each.is_absolute() and each.resolve() != here]
    found: dict[str, list[EntryPoint]] = {}
    seen: set[str] = set()
    for package in metadata.distributions(path=places):
        entries = package.entry_points.select(group=GROUP)
        # The first one on the path is the one that is imported.
        if entries and (name := package.metadata["Name"]) not in seen:
            seen.add(name)
            for entry in entries:
                found.setdefault(entry.name, []).append(entry)
    return found


def package_of(entry: EntryPoint) -> str:
    """The package of an entry point, with its version."""
    package = entry.dist
    return f"{package.metadata['Name']} {package.version}" if package else entry.value


def _load(entries: list[EntryPoint]) -> object:
    entry, *others = entries
    if others:
        packages = " and ".join(package_of(each) for each in entries)
        raise ConfigurationError(
            f"provider {entry.name!r} comes from several packages ({packages}): keep one of them"
        )
    try:
        return entry.load()
    except (Exception, SystemExit) as error:
        reason = f"{type(error).__name__}: {error}"
        raise _unusable(entry, reason) from error


def _unusable(entry: EntryPoint, reason: str) -> ConfigurationError:
    reason = " ".join(reason.split())
    if len(reason) > _MESSAGE_LIMIT:
        reason = f"{reason[:_MESSAGE_LIMIT]}…"
    return ConfigurationError(
        f"provider {entry.name!r}: the package {package_of(entry)} cannot be used: {reason}. "
        "Update or uninstall it"
    )
