"""Writes an annotated `penstock.toml` out of the settings, so that it cannot go stale."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator
from typing import Any, cast, get_args

from pydantic.fields import FieldInfo

from penstock.config.settings import Config
from penstock.config.values import Section
from penstock.providers.registry import BUILT_IN

_WIDTH = 96

_DEFAULT_MODEL = "embedded/smollm2"
_HEAD = """\
# Penstock's configuration. It is looked for in this order: the file named by PENSTOCK_CONFIG,
# ./penstock.toml, and penstock.toml in PENSTOCK_HOME (~/.penstock). `penstock doctor` checks it.
#
# A line that begins with "#name =" shows a setting with its default: take the # away to change it.
# ${NAME} and ${NAME:-default} in a text stand for environment variables, so that keys stay out of
# this file.
"""

_PROVIDERS = """\
# The model inside this process: no key, no network.
[providers.embedded]

# OpenAI's Chat Completions. OPENAI_API_KEY is read from the environment.
#[providers.openai-chat]

# Groq, with its key from GROQ_API_KEY; the other kinds below work in the same way.
#[providers.groq]

# A server of your own that speaks the same dialect: vLLM, llama.cpp, LM Studio, ...
#[providers.vllm]
#url = "http://127.0.0.1:8000/v1"

# The same kind twice, under names of your own, with a key that is named here.
#[providers.team]
#kind = "openai-chat"
#auth_token = "${TEAM_API_KEY}"

# A GGUF file of your own, in this process. Its models: own/default, or own/ and the file's name.
#[providers.own]
#kind = "embedded"
#model_path = "~/models/qwen3-4b-q4_k_m.gguf"
"""

_MODELS = """\
# What callers ask for: a name, and the targets that serve it. The second is tried when the first
# fails. Callers who name no model get `default`, or the first one here.
[models.default]
targets = ["embedded/smollm2"]

#[models.assistant]
#targets = ["groq/llama-3.3-70b-versatile", "vllm/qwen3", "embedded/smollm2"]
# What a target costs, in USD per million tokens, if Penstock does not know it, or you know better.
#prices."vllm/qwen3" = { input = 0.1, output = 0.4 }
"""

_BUDGETS = """\
# What may be spent, any number of them at once; `penstock budget list` shows what is left, and
# `penstock usage` what was spent. `penstock budget set` makes one without this file.
#[budgets.total]
#limit_usd = 100.0

# Only for one provider, a week at a time, and with warnings only.
#[budgets.groq]
#limit_usd = 20.0
#period = "week"
#timezone = "Europe/Berlin"
#provider = "groq"
#hard = false
"""

_KEYS = """\
# Who may call the gateway. Without any key it serves this machine only, and requires no key. The
# command `penstock keys create` makes keys without this file; those below are for deployments whose
# keys come with the file: `penstock keys hash` makes a key and prints what to write here.
#[keys.ci]
#hash = "sha256:0000000000000000000000000000000000000000000000000000000000000000"
#models = ["default"]
#requests_per_minute = 600
#tokens_per_minute = 1_000_000
#budget = { limit_usd = 5.0, period = "day" }
"""

_PROSE = {"providers": _PROVIDERS, "models": _MODELS, "budgets": _BUDGETS, "keys": _KEYS}
"""What is written by hand: examples for the tables that are there once a name."""


def template(model: str = _DEFAULT_MODEL) -> str:
    """The text of the file, which loads as it is; `model` is the target of `default`.

    Without one it amounts to the built-in defaults.
    """
    parts = [_HEAD]
    for name, field in Config.model_fields.items():
        if name in _PROSE:
            parts.append(_PROSE[name].replace(f"[{_toml(_DEFAULT_MODEL)}]", f"[{_toml(model)}]"))
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, Section):
            parts.append(_table(name, kind))
        else:
            parts.append(_named_tables(name, get_args(kind)[1]))
        if name == "providers":
            parts.append("".join(_kinds()))
    return "\n".join(parts)


def _table(name: str, section: type[Section]) -> str:
    lines = [*_comment(_first_line(section)), f"[{name}]"]
    for key, field in section.model_fields.items():
        lines += _setting(key, field)
    return "\n".join(lines) + "\n"


def _named_tables(name: str, section: type[Section]) -> str:
    lines = [f"# Every [{name}.NAME] takes these settings:"]
    for key, field in section.model_fields.items():
        described = f"{key}: {field.description}"
        if not field.is_required() and _default(field) not in (None, {}, ()):
            described += f" Default: {_toml(_default(field))}."
        lines += _comment(described, first="#   ", rest="#     ")
    return "\n".join(lines) + "\n"


def _setting(name: str, field: FieldInfo) -> Iterator[str]:
    default = _default(field)
    # TOML has no null.
    unset = " Not set by default." if default is None else ""
    yield from _comment(f"{field.description}{unset}")
    if field.examples:
        yield f"# Example: {name} = {_toml(field.examples[0])}"
    else:
        yield f"#{name} = {_toml('' if default is None else default)}"


def _default(field: FieldInfo) -> Any:
    return field.get_default(call_default_factory=True, validated_data={})


def _kinds() -> Iterator[str]:
    yield "# The kinds that there are, their addresses, and the variables that hold their keys:\n"
    for kind in BUILT_IN.values():
        where = kind.url or kind.title
        key = f", {' or '.join(kind.key_variables)}" if kind.key_variables else ""
        yield f"#   {kind.name:<12} {where}{key}\n"


def _first_line(section: type[Section]) -> str:
    return (section.__doc__ or "").strip().partition("\n")[0]


def _comment(text: str, first: str = "# ", rest: str = "# ") -> list[str]:
    return textwrap.wrap(text, _WIDTH, initial_indent=first, subsequent_indent=rest)


def _toml(value: Any) -> str:
    """A value of the settings in TOML; JSON writes all but large numbers the same way."""
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:_}" if value >= 100_000 else str(value)
    if isinstance(value, dict):
        pairs = cast(dict[str, Any], value).items()
        return f"{{ {', '.join(f'{key} = {_toml(item)}' for key, item in pairs)} }}"
    return json.dumps(value, ensure_ascii=False)
