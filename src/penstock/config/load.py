"""Reads the configuration: finds the file, fills in the environment, and explains what is wrong."""

from __future__ import annotations

import difflib
import os
import re
import sys
import tomllib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, TypeAlias, cast

from pydantic import ValidationError

from penstock.config import trust, untrusted
from penstock.config.explain import explain, explain_syntax, place_of
from penstock.config.lines import Lines
from penstock.config.partial import without
from penstock.config.settings import Config, PriceConfig, home
from penstock.config.trust import ConfigFile, UntrustedFile
from penstock.contract.errors import ConfigurationError
from penstock.providers.embedded.embeddings import MODEL
from penstock.providers.registry import KINDS, callable_names, unknown_kind

FILE_NAME = "penstock.toml"
_Place: TypeAlias = tuple[str | int, ...]
_DEEPEST = 32
"""Levels of tables and lists; the settings have six."""
_MOST_NEEDS = 8
"""Settings that a message about trust names; the others are counted."""
_MOST_LISTED = 20
"""An error lists at most so many problems."""
_Found: TypeAlias = tuple[_Place, Callable[[], str]]
"""Where a problem is, and its message, which is made for the listed ones only."""


def find() -> Path | None:
    """PENSTOCK_CONFIG, else `penstock.toml` here, else in PENSTOCK_HOME; None without any."""
    file = locate()
    return None if file is None else file.path


def locate(path: str | Path | None = None) -> ConfigFile | None:
    """The file of this path, or the one that `find` sees, and whether the user has named it."""
    if path is not None:
        return ConfigFile(Path(path).expanduser())
    if named := os.environ.get("PENSTOCK_CONFIG"):
        return ConfigFile(Path(named).expanduser())
    here, own = Path.cwd(), home()
    # A relative PENSTOCK_HOME is a part of the working folder.
    own_is_here = own.is_absolute() and own.resolve() == here.resolve()
    if (here / FILE_NAME).is_file() and not own_is_here:
        return ConfigFile(trust.in_folder(here, FILE_NAME), found=True)
    if (own / FILE_NAME).is_file():
        if own.is_absolute():
            return ConfigFile(own / FILE_NAME)
        return ConfigFile(trust.in_folder(own, FILE_NAME), found=True)
    return None


def load(path: str | Path | None = None) -> Config:
    """The configuration of this file, of the one that `find` sees, or the embedded default.

    Raises ConfigurationError naming file, line and remedy of every problem, also when a file of the
    working folder says what needs trust.
    """
    file = locate(path)
    return Config.embedded() if file is None else load_file(file)


def load_file(file: ConfigFile) -> Config:
    """The configuration of this file; raises as `load` does."""
    text, document, untrusted_file = _read(file)
    if untrusted_file is not None:
        raise ConfigurationError(str(untrusted_file))
    return _config(document, text, str(file.path)).read_from(file.path)


def find_untrusted(path: str | Path | None = None) -> UntrustedFile | None:
    """The file that `load` refuses until it is trusted; raises for other problems of reading it."""
    file = locate(path)
    return None if file is None else _read(file)[2]


def _read(file: ConfigFile) -> tuple[str, dict[str, Any], UntrustedFile | None]:
    """The text, what it says, and whether it needs trust that it has not; read once."""
    try:
        contents = trust.read(file)
    except OSError as error:
        raise _unreadable(file.path, error.strerror) from error
    except ValueError as error:
        raise _unreadable(file.path, "its name is not a path") from error
    text = _text_of(contents, str(file.path))
    document = _document(text, str(file.path))
    if file.found:
        lines = _needs_of(text, document, contents.unsafe)
        if lines and not trust.is_trusted(file, contents):
            return text, document, UntrustedFile(file.path, contents.digest, tuple(lines))
    return text, document, None


def describe_needs(contents: trust.Contents, name: str) -> list[str]:
    """What of this file needs trust: a line for each setting, of which the first are named."""
    text = _text_of(contents, name)
    return _needs_of(text, _document(text, name), contents.unsafe)


def _unreadable(name: str | Path, reason: str | None) -> ConfigurationError:
    return ConfigurationError(
        f"cannot read the configuration {name}: {reason}; `penstock init` writes a new one"
    )


def _text_of(contents: trust.Contents, name: str) -> str:
    try:
        text = contents.data.decode("utf-8-sig")
    except ValueError as error:
        raise _unreadable(name, "it is not UTF-8 text") from error
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _needs_of(text: str, document: untrusted.Document, unsafe: str) -> list[str]:
    found = untrusted.needs(document)
    lines = Lines(text)
    messages = [unsafe] if unsafe else []
    messages += [
        f"{untrusted.shown(_place(lines, need.path))}: {need.reason}"
        for need in islice(found, _MOST_NEEDS)
    ]
    if more := sum(1 for _ in found):
        messages.append(f"and {more} more")
    return messages


def parse(text: str, name: str = FILE_NAME) -> Config:
    """The configuration that this TOML text describes; `name` is used in messages."""
    return _config(_document(text, name), text, name)


def _document(text: str, name: str) -> dict[str, Any]:
    try:
        document = tomllib.loads(text)
    except ValueError as error:
        raise ConfigurationError(f"{name} is not TOML: {explain_syntax(text, error)}") from error
    except RecursionError:
        document = None
    if document is None or _is_deep(document):
        raise ConfigurationError(f"{name}: it is nested too deeply")
    return document


def _is_deep(document: dict[str, Any]) -> bool:
    """Whether tables and lists are nested beyond `_DEEPEST`, without recursion."""
    level: list[Any] = [document]
    for _ in range(_DEEPEST):
        level = [item for each in level for item in _items(each)]
    return bool(level)


def _items(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return cast(dict[str, Any], value).values()
    return cast(list[Any], value) if isinstance(value, list) else ()


def _config(document: dict[str, Any], text: str, name: str) -> Config:
    lines = Lines(text)
    missing: list[_Found] = []
    written: dict[_Place, str] = {}
    filled = _fill(document, (), missing, written)
    unset = {path for path, _ in missing}
    problems, dirty = list(missing), set(unset)
    try:
        config = Config.model_validate(filled)
    except ValidationError as error:
        problems += [each for each in _misfits(error, written) if each[0] not in unset]
        places = [item["loc"] for item in error.errors(include_url=False, include_context=False)]
        dirty.update(places)
        config = _validated(filled, places)
        if not problems:
            raise
    if config is None:
        raise _refused(problems, lines, name)
    whole = _with_default_model(config)
    whole.written.update(written)
    # Tables with a wrong value are shown with that alone.
    skipped = {path[:2] for path in dirty}
    problems += [each for each in _inconsistencies(config, whole) if each[0][:2] not in skipped]
    if problems:
        raise _refused(problems, lines, name)
    return whole


def _validated(document: Mapping[str, Any], places: Iterable[_Place]) -> Config | None:
    """The configuration without what is wrong, to look for further problems."""
    rest = without(document, places)
    try:
        return None if rest is None else Config.model_validate(rest)
    except ValidationError:
        return None


def _inconsistencies(config: Config, whole: Config) -> Iterator[_Found]:
    """What does not fit together, of values that each fit their settings."""
    yield from _unknown_names(config)
    yield from _misplaced_prices(config)
    yield from _idle_budgets(config)
    yield from _wrong_keys(whole)


def _refused(found: Sequence[_Found], lines: Lines, name: str) -> ConfigurationError:
    """The first of the problems: one in one line, several in a line each, in the file's order."""
    if len(found) == 1:
        ((path, say),) = found
        return ConfigurationError(f"{name}, {_place(lines, path)}: {say()}")
    inside = sorted(found, key=lambda each: lines.line_of(each[0]) or sys.maxsize)
    listed = [f"{_place(lines, path)}: {say()}" for path, say in inside[:_MOST_LISTED]]
    if len(found) > _MOST_LISTED:
        listed.append(f"and {len(found) - _MOST_LISTED} more")
    return ConfigurationError("\n".join([f"{name} has {len(found)} problems", *listed]))


def _misfits(error: ValidationError, written: Mapping[_Place, str]) -> Iterator[_Found]:
    """What does not fit its setting."""
    found = error.errors(include_url=False)
    # Of a list whose items are wrong, pydantic also says that it is too short without them.
    within = {item["loc"][:-1] for item in found}
    for item in found:
        if item["loc"] not in within:
            value = written.get(item["loc"], item["input"])
            yield place_of(item["loc"]), partial(explain, item, value)


def _unknown_names(config: Config) -> Iterator[_Found]:
    """Kinds and targets that do not exist: a typo must not wait for its first request."""
    for name, provider in config.providers.items():
        kind = provider.kind or name
        path = ("providers", name, "kind") if provider.kind else ("providers", name)
        if said := _no_kind(kind, KINDS):
            yield path, said
    known = callable_names(config.providers)
    for name, model in config.models.items():
        for index, target in enumerate(model.targets):
            provider = target.partition("/")[0]
            if provider not in config.providers and (said := _no_kind(provider, known)):
                yield ("models", name, "targets", index), said
    embedder = config.routing.embedder
    provider, _, model = embedder.partition("/")
    if embedder != MODEL and embedder not in config.models:
        if not model:
            said = f"{embedder!r} is not an embedder; write {MODEL!r}, provider/model or a model"
            yield ("routing", "embedder"), said.__str__
        elif provider not in known:
            yield ("routing", "embedder"), partial(unknown_kind, provider, known)


def _no_kind(kind: str, known: Collection[str]) -> Callable[[], str] | None:
    """Why there is no such kind, or why the package that brings it cannot be used."""
    if kind not in known:
        return partial(unknown_kind, kind, known)
    try:
        KINDS.get(kind)
    except ConfigurationError as error:
        return str(error).__str__
    return None


def _misplaced_prices(config: Config) -> Iterator[_Found]:
    """Prices that would never apply, and two for one target, of which only one could."""
    given: dict[str, tuple[str, PriceConfig]] = {}
    for name, model in config.models.items():
        targets = frozenset(model.targets)
        for target, price in model.prices.items():
            path = ("models", name, "prices", target)
            if target not in targets:
                yield path, partial(_no_target, target, model.targets)
            other, its_price = given.setdefault(target, (name, price))
            if price != its_price:
                said = (
                    f"{target!r} has another price in models.{other}; give it one price, in one "
                    "place"
                )
                yield path, said.__str__


def _no_target(target: str, targets: Sequence[str]) -> str:
    near = difflib.get_close_matches(target, targets, 1) or targets
    return f"{target!r} is none of this model's targets; write {near[0]!r}"


def _idle_budgets(config: Config) -> Iterator[_Found]:
    """Budgets that would never apply: whoever relies on one must not learn it from the bill."""
    known = callable_names(config.providers)
    targets = [target for model in config.models.values() for target in model.targets]
    upstream = {name for target in targets for name in (target, target.partition("/")[2])}
    for name, budget in config.budgets.items():
        if budget.provider is not None and budget.provider not in known:
            yield ("budgets", name, "provider"), partial(unknown_kind, budget.provider, known)
        if budget.model in config.models and budget.model not in upstream:
            said = (
                f"{budget.model!r} is a model of this file, and budgets count what it stands for: "
                f"write one of its targets, such as {config.models[budget.model].targets[0]!r}"
            )
            yield ("budgets", name, "model"), said.__str__


def _wrong_keys(config: Config) -> Iterator[_Found]:
    """Models that a key could never use, and two keys that could not be told apart."""
    known = callable_names(config.providers)
    of: dict[str, str] = {}
    for name, key in config.keys.items():
        for index, model in enumerate(key.models):
            provider, separator, _ = model.partition("/")
            if model not in config.models and not (separator and provider in known):
                yield ("keys", name, "models", index), partial(_no_model, model, config.models)
        if (other := of.setdefault(key.hash, name)) != name:
            said = f"it is also that of keys.{other}; give each its own key"
            yield ("keys", name, "hash"), said.__str__
    for name in config.budgets:
        if name.startswith("key:"):
            said = "names that begin with `key:` are for the keys' own budgets; take another"
            yield ("budgets", name), said.__str__


def _no_model(model: str, models: Iterable[str]) -> str:
    near = difflib.get_close_matches(model, models, 1)
    hint = f"did you mean {near[0]!r}?" if near else "write a model of this file"
    return f"there is no model {model!r}; {hint}"


def _with_default_model(config: Config) -> Config:
    """A file that names no model, nor a provider other than `embedded`, means the bundled one."""
    if config.models or config.providers.keys() - {"embedded"}:
        return config
    default = Config.embedded()
    providers = {**default.providers, **config.providers}
    return config.model_copy(update={"providers": providers, "models": default.models})


def _fill(value: Any, path: _Place, missing: list[_Found], written: dict[_Place, str]) -> Any:
    if isinstance(value, str):
        filled = untrusted.VARIABLE.sub(lambda match: _variable(match, path, missing), value)
        if untrusted.VARIABLE.search(value):
            written[path] = value
        return filled
    if isinstance(value, dict):
        table = cast(dict[str, Any], value)
        return {key: _fill(item, (*path, key), missing, written) for key, item in table.items()}
    if isinstance(value, list):
        items = cast(list[Any], value)
        return [_fill(item, (*path, index), missing, written) for index, item in enumerate(items)]
    return value


def _variable(match: re.Match[str], path: _Place, missing: list[_Found]) -> str:
    name, default = match[1], match[2]
    value = os.environ.get(name)
    if value is not None:
        return value
    if default is None:
        said = (
            f"the environment variable {name} is not set; set it, or give a default as "
            f"${{{name}:-...}}"
        )
        missing.append((path, said.__str__))
        return ""
    return default


def _place(lines: Lines, path: Sequence[str | int]) -> str:
    line = lines.line_of(path)
    dotted = "".join(_dotted(path))
    return f"line {line}, {dotted}" if line else dotted


def _dotted(path: Sequence[str | int]) -> Iterator[str]:
    for index, piece in enumerate(path):
        if isinstance(piece, int):
            yield f"[{piece}]"
        else:
            yield piece if index == 0 else f".{piece}"
