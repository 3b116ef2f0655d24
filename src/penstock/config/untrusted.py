"""What a configuration may do that was found in the working folder and is not trusted.

A folder may come from a stranger, such as a cloned repository. Settings that can send prompts or
secrets elsewhere, read or write other files, weaken a budget, or open the gateway need trust. All
others work without a question.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias, cast
from urllib.parse import urlsplit

from penstock.config.settings import DEFAULT_STORAGE, Config
from penstock.config.values import Section
from penstock.contract.checks.addresses import is_loopback_host
from penstock.providers.kinds import installed_kinds
from penstock.providers.registry import BUILT_IN

VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
"""`${NAME}` or `${NAME:-default}` in a text of the file."""
Path: TypeAlias = tuple[str | int, ...]
Document: TypeAlias = Mapping[str, Any]
_LONGEST = 80
_OWN_KEY = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-)?\}")
_NAMED = ("providers", "models", "budgets", "keys")
"""Tables whose members have names of the user's choice."""


class Need(NamedTuple):
    """A setting that needs trust, and why."""

    path: Path
    reason: str


class Rule(NamedTuple):
    """A setting that needs trust."""

    reason: str
    """What it can do, as the continuation of `it`."""
    harmless: Callable[[Path, str, Document], bool] | None = None
    """Whether this value at this path needs no trust."""
    exception: str = ""
    """The same in words, for the documentation."""


def shown(text: str) -> str:
    """A text of the file for a message: short, and without control characters."""
    cut = text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
    return "".join(each if each.isprintable() else "?" for each in cut)


def needs(document: Document) -> Iterator[Need]:
    """Each setting of this document that needs trust, in the order of the file."""
    yield from _installed_kinds(document)
    for path, value in _leaves((), document):
        if isinstance(value, str) and (found := VARIABLE.findall(value)):
            if not _is_own_key(path, value, document):
                names = ", ".join(dict.fromkeys(shown(name) for name, _ in found))
                yield Need(path, f"it reads the environment variable {names}")
        elif (rule := rule_of(pattern_of(path))) is not None and not _is_default(path, value):
            text = value if isinstance(value, str) else ""
            if rule.harmless is None or not rule.harmless(path, text, document):
                yield Need(path, f"it {rule.reason}")


def _installed_kinds(document: Document) -> Iterator[Need]:
    """Uses of kinds that installed packages bring: they run code and read keys of their choice."""
    providers = _table(document, "providers")
    for name in providers:
        if _is_installed(_kind(document, name)):
            named = "kind" in _provider(document, name)
            path = ("providers", name, "kind") if named else ("providers", name)
            yield Need(path, _INSTALLED)
    models = _table(document, "models")
    asked: list[tuple[Path, Any]] = [
        (("models", name, "targets", index), target)
        for name in models
        for index, target in enumerate(_targets(models, name))
    ]
    asked.append((("routing", "embedder"), _table(document, "routing").get("embedder")))
    for path, target in asked:
        name = target.partition("/")[0] if isinstance(target, str) else ""
        if name not in providers and _is_installed(name):
            yield Need(path, _INSTALLED)


def _is_installed(kind: str) -> bool:
    return kind not in BUILT_IN and kind in installed_kinds()


def _targets(models: Document, name: str) -> list[Any]:
    targets = _table(models, name).get("targets")
    return cast(list[Any], targets) if isinstance(targets, list) else []


def pattern_of(path: Path) -> tuple[str, ...]:
    """The path with `*` in place of names that the user chooses, and without indices."""
    pieces = [piece for piece in path if isinstance(piece, str)]
    if len(pieces) > 1 and pieces[0] in _NAMED:
        pieces[1] = "*"
    return tuple(pieces)


def rule_of(pattern: tuple[str, ...]) -> Rule | None:
    """The rule of this setting or of a table that holds it."""
    for length in range(len(pattern), 0, -1):
        if (rule := RULES.get(pattern[:length])) is not None:
            return rule
    return None


def _is_default(path: Path, value: Any) -> bool:
    """Whether this is what would hold without the file."""
    if len(path) != 2 or not isinstance(path[1], str) or path[0] not in Config.model_fields:
        return False
    section = Config.model_fields[str(path[0])].annotation
    if not (isinstance(section, type) and issubclass(section, Section)):
        return False
    field = section.model_fields.get(path[1])
    return field is not None and bool(field.default == value)


def _leaves(path: Path, value: Any) -> Iterator[tuple[Path, Any]]:
    if isinstance(value, dict):
        for key, item in cast(dict[str, Any], value).items():
            yield from _leaves((*path, key), item)
    elif isinstance(value, list):
        for index, item in enumerate(cast(list[Any], value)):
            yield from _leaves((*path, index), item)
    else:
        yield path, value


def _is_own_key(path: Path, value: str, document: Document) -> bool:
    """Whether a provider reads its own key, for its own address."""
    if len(path) != 3 or path[0] != "providers" or path[2] != "auth_token":
        return False
    provider = _provider(document, str(path[1]))
    kind, named = BUILT_IN.get(_kind(document, str(path[1]))), _OWN_KEY.fullmatch(value)
    if kind is None or named is None or named[1] not in kind.key_variables:
        return False
    return provider.get("url", kind.url) == kind.url


def _table(holder: Any, name: str) -> Document:
    inner = cast(Document, holder).get(name) if isinstance(holder, dict) else None
    return cast(Document, inner) if isinstance(inner, dict) else {}


def _provider(document: Document, name: str) -> Document:
    return _table(_table(document, "providers"), name)


def _kind(document: Document, name: str) -> str:
    return str(_provider(document, name).get("kind") or name)


def _stays_here(document: Document, name: str) -> bool:
    """Whether the provider of this name is on this machine, by its `url` or its kind."""
    kind = BUILT_IN.get(_kind(document, name))
    if kind is None:
        return False
    url = _provider(document, name).get("url", kind.url)
    if kind.local is not None:
        return True
    # Bedrock signs requests with the user's AWS credentials, whatever the address.
    return isinstance(url, str) and kind.name != "bedrock" and _is_loopback_url(url)


def _is_loopback_url(url: str) -> bool:
    try:
        return is_loopback_host(urlsplit(url).hostname or "")
    except ValueError:
        return False


def _own_or_local(path: Path, value: str, document: Document) -> bool:
    name = str(path[1])
    kind = BUILT_IN.get(_kind(document, name))
    return (kind is not None and value == kind.url) or _stays_here(document, name)


def _local(path: Path, _value: str, document: Document) -> bool:
    return _stays_here(document, str(path[1]))


def _local_target(path: Path, _value: str, document: Document) -> bool:
    # The file may have any value where a table is expected, so the name may be missing.
    target = path[3] if len(path) > 3 else ""
    return _stays_here(document, str(target).partition("/")[0])


def _no_model_file(_path: Path, value: str, document: Document) -> bool:
    provider, _, model = value.partition("/")
    return not (_kind(document, provider) == "embedded" and model.endswith(".gguf"))


def _default_ledger(_path: Path, value: str, _document: Document) -> bool:
    return value == DEFAULT_STORAGE


def _loopback_host(_path: Path, value: str, _document: Document) -> bool:
    return is_loopback_host(value)


_INSTALLED = "it uses a provider of an installed package"
_BUDGET = "weakens or changes budgets of your ledger"
_AT_LOOPBACK = "the provider runs in this process, or its `url` is a loopback address"
RULES: Mapping[tuple[str, ...], Rule] = {
    ("server", "host"): Rule(
        "opens the gateway to other machines", _loopback_host, "a loopback address"
    ),
    ("server", "tls_certificate"): Rule("makes the gateway read this file"),
    ("server", "tls_key"): Rule("makes the gateway read this file"),
    ("server", "cors_origins"): Rule("opens the gateway to web pages"),
    ("server", "mcp_servers"): Rule("chooses the MCP servers that callers can connect to"),
    ("server", "forwarded_fields"): Rule("lets callers choose what providers do and cost"),
    ("server", "admin_key"): Rule("chooses the key that opens `/admin`"),
    ("providers", "*", "url"): Rule(
        "sends prompts to an address that this file chooses",
        _own_or_local,
        "the kind's own address, or a loopback address (not for `bedrock`)",
    ),
    ("providers", "*", "auth_token"): Rule(
        "sends prompts to an account that this file chooses",
        _local,
        f"{_AT_LOOPBACK}; or `${{NAME}}` with the kind's own variable, at its own address",
    ),
    ("providers", "*", "headers"): Rule(
        "sends headers that this file chooses to a provider", _local, _AT_LOOPBACK
    ),
    ("providers", "*", "model_path"): Rule("loads this model file"),
    ("providers", "*", "profile"): Rule("chooses one of your AWS profiles"),
    ("models", "*", "targets"): Rule(
        "loads this model file", _no_model_file, "no `.gguf` file is named"
    ),
    ("models", "*", "prices"): Rule(_BUDGET, _local_target, _AT_LOOPBACK),
    ("pool", "ca_file"): Rule("chooses whom TLS connections trust"),
    ("prices",): Rule(_BUDGET),
    ("storage", "url"): Rule(
        "chooses another ledger than the one of your budgets", _default_ledger, "the default"
    ),
    ("storage", "owner"): Rule(_BUDGET),
    ("telemetry", "otlp_endpoint"): Rule("sends traces to an address that this file chooses"),
    ("telemetry", "otlp_headers"): Rule("sends headers that this file chooses to a collector"),
    ("budgets",): Rule(_BUDGET),
    ("keys",): Rule("gives keys of the gateway to others"),
    ("routing", "embedder"): Rule(
        "loads this model file", _no_model_file, "no `.gguf` file is named"
    ),
    ("routing", "index_url"): Rule("connects to a database that this file chooses"),
    ("routing", "keep_prompts"): Rule("keeps your prompts on disk"),
    ("routing", "memory"): Rule("deletes what routing has learned"),
    ("routing", "keep_outcomes"): Rule("deletes what routing has learned"),
    ("routing", "keep_days"): Rule("deletes what routing has learned"),
    ("sampling",): Rule("decides what MCP servers may ask of your models"),
}
"""The settings that need trust; a rule of a table holds for all of its settings."""

HARMLESS = frozenset(
    {
        *(("server", name) for name in ("port", "log", "workers", "grace_s", "drain_s")),
        *(("server", name) for name in ("idempotency_ttl_s", "keep_error_text", "audit_days")),
        ("server", "mcp_resume_s"),
        *(
            ("providers", "*", name)
            for name in ("kind", "threads", "context", "max_concurrent", "api_version", "region")
        ),
        *(
            ("models", "*", name)
            for name in ("routing", "priorities", "sticky", "adapt", "max_tokens")
        ),
        ("storage", "synchronous"),
        *(("telemetry", name) for name in ("service_name", "sample_ratio")),
        *(("routing", name) for name in ("explore", "trust", "isolate_keys", "index", "seed")),
    }
)
"""The settings that need none, beside all of `[limits]` and the others of `[pool]`."""
HARMLESS_TABLES = frozenset({"limits", "pool"})
