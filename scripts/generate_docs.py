"""Writes the pages that are made from code, or checks that they are fresh.

    python scripts/generate_docs.py            write them
    python scripts/generate_docs.py --check    fail when one is stale

| page | made from |
|---|---|
| docs/providers/matrix.md | tests/conformance: behaviours and subjects; the table of options |
| docs/providers/independent.md | tests/independent: the same on servers of other people |
| docs/sampling-behaviours.md | tests/mcp/sampling: what the standard asks for, and what shows it |
| docs/configuration.md | penstock.config: the settings and the template |
| docs/errors.md | penstock.contract.errors: the tree and its docstrings |
| docs/cli.md | penstock.cli: the help of every command |
| docs/conformance.md | tests/mcp/conformance/scores.json: what the official MCP suite said |
| docs/contributing.md | CONTRIBUTING.md |
| docs/openapi.json, docs/admin-openapi.json | penstock.server: the types of the endpoints |

In pages that people write, the table between `<!-- generated: NAME -->` and `<!-- end -->` is
generated too; the names are the keys of `TABLES`.
"""

from __future__ import annotations

import inspect
import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

import typer  # noqa: E402

from penstock.budget.pricing.price_sources import SOURCES  # noqa: E402
from penstock.cli.app import build  # noqa: E402
from penstock.config import load  # noqa: E402
from penstock.config.settings import Config  # noqa: E402
from penstock.config.template import template  # noqa: E402
from penstock.config.untrusted import RULES  # noqa: E402
from penstock.contract import errors  # noqa: E402
from penstock.contract.adaptation import OPTIONS, answer  # noqa: E402
from penstock.providers.registry import BUILT_IN  # noqa: E402
from penstock.providers.wire.stop_reasons import STOP_REASONS  # noqa: E402
from penstock.server.admin.api import admin_document  # noqa: E402
from penstock.server.admin.events import DATA  # noqa: E402
from penstock.server.openapi.public import doors_document  # noqa: E402
from tests.conformance.behaviour import Behaviour  # noqa: E402
from tests.conformance.behaviours import BEHAVIOURS, SECTIONS  # noqa: E402
from tests.conformance.subjects import SUBJECTS  # noqa: E402
from tests.independent.rows import Row  # noqa: E402
from tests.independent.servers import ROWS, TITLES, faults  # noqa: E402
from tests.mcp.conformance import suite  # noqa: E402
from tests.mcp.host.connections import WAYS  # noqa: E402
from tests.mcp.sampling import manifest  # noqa: E402
from tests.mcp.sampling.requirement import BOTH, Requirement  # noqa: E402
from tests.support.option_table import OptionRow, rows  # noqa: E402

COMMAND = "python scripts/generate_docs.py"
WIDTH = 100
_REGION = re.compile(r"(<!-- generated: ([\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def _page(title: str, *parts: str, source: str) -> str:
    note = f"<!-- Made by scripts/generate_docs.py from {source}; do not edit. -->"
    return "\n\n".join((f"# {title}", note, *parts)) + "\n"


def _table(head: Sequence[str], rows: Iterator[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def _text(value: object) -> str:
    return inspect.cleandoc(str(value))


def _fence(language: str, text: str) -> str:
    return f"```{language}\n{text.rstrip()}\n```"


# The support matrix


def matrix() -> str:
    """Behaviours by providers, with the reason for each empty cell."""
    reasons: dict[str, int] = {}

    def cell(subject_number: int, behaviour: str) -> str:
        absent = SUBJECTS[subject_number].not_applicable.get(behaviour)
        if absent is None:
            return "yes"
        number = reasons.setdefault(absent.reason, len(reasons) + 1)
        return f"{'refused' if absent.refuses else 'n/a'} ({number})"

    head = ["", *(f"`{subject.name}`" for subject in SUBJECTS)]
    sections = [
        f"## {title}\n\n"
        + _table(
            head,
            (
                [behaviour.title, *(cell(column, behaviour.id) for column in range(len(SUBJECTS)))]
                for behaviour in behaviours
            ),
        )
        for title, behaviours in SECTIONS.items()
    ]
    why = "\n".join(f"{number}. {reason}" for reason, number in reasons.items())
    return "---\nhide:\n  - toc\n---\n\n" + _page(
        "Support matrix",
        "Every cell is a test that runs through the public API: against a server on loopback that "
        "speaks the provider's wire, or against the real model for `embedded`. **yes** means that "
        "it passes, **refused** that the API has no such thing and `UnsupportedOption` says so "
        "before anything is sent, **n/a** that there is nothing to test. The numbers lead to the "
        "reasons at the end. Run one cell with",
        "<!-- test: skip runs these very tests -->",
        _fence("console", "make test ARGS=\"-k 'tool-call and openai-chat'\""),
        *sections,
        f"## Reasons\n\n{why}",
        *_options(),
        source="tests/conformance and penstock.contract.adaptation",
    )


def _options() -> Iterator[str]:
    """What becomes of every option at every dialect, and the models that differ."""
    table = list(rows())
    bases = [row for row in table if not row.models]
    yield "## Options"
    yield (
        "What becomes of an option at a model that no rule knows: **native**, **adapted** to the "
        "nearest value or left out, **emulated** with the same result, or **refused** by name. "
        "See [options that a target lacks](../adaptation.md)."
    )
    yield _table(
        ["", *(f"`{row.kind}`" for row in bases)],
        (
            [option.title, *(answer(name, row.able) for row in bases)]
            for name, option in OPTIONS.items()
        ),
    )
    yield "### Models that differ"
    yield _table(("provider", "models", "differences"), _exceptions(table))


def _exceptions(table: Sequence[OptionRow]) -> Iterator[Sequence[str]]:
    """Models with other answers than their dialect's; those that are alike in one row."""
    alike: dict[tuple[str, str], list[str]] = {}
    able = {row.kind: row.able for row in table if not row.models}
    for row in table:
        base = able[row.kind]
        changed: dict[str, list[str]] = {}
        for name, option in OPTIONS.items():
            if row.models and (found := answer(name, row.able)) != answer(name, base):
                changed.setdefault(found, []).append(option.title)
        if changed:
            said = "; ".join(f"**{found}**: {', '.join(names)}" for found, names in changed.items())
            alike.setdefault((row.provider, said), []).append(f"`{row.models}`")
    for (provider, said), models in alike.items():
        yield [f"`{provider}`", ", ".join(models), said]


# The same behaviours on servers of other people


def independent() -> str:
    """Behaviours by dialects for each server, with what it cannot show and what it gets wrong."""
    parts = [part for server in TITLES for part in _server(server)]
    return "---\nhide:\n  - toc\n---\n\n" + _page(
        "Independent servers",
        "The [support matrix](matrix.md) is run against servers of our own, which could share a "
        "mistake with the adapters. So the same checks run again, through the public API, against "
        "servers that other people wrote; the test run starts them. **yes** means that the check "
        "passes, **n/a** that the API has no such thing, **no** that the server cannot be brought "
        "to show it, **wrong** that the check fails because the server does what the API does not. "
        "The numbers lead to the reasons below each table. Each fault has a proof without a line "
        "of Penstock, by the provider's official client or by the bytes; a fault that was mended "
        "fails the tests until it has left this page.",
        "<!-- test: skip runs these very tests -->",
        _fence(
            "console", "make test-peers ARGS=\"tests/independent -k 'tool-call and aimock-openai'\""
        ),
        *parts,
        source="tests/independent",
    )


def _server(server: str) -> Iterator[str]:
    rows = [row for row in ROWS if row.server == server]
    reasons: dict[str, int] = {}
    known = faults(server)
    numbers = {wrong.fault: number for number, wrong in enumerate(known, start=1)}

    def cell(row: Row[Any], behaviour: Behaviour) -> str:
        match row.verdict(behaviour):
            case "passes":
                return "yes"
            case "not applicable":
                return "n/a"
            case "not expressible":
                reason = row.inexpressible[behaviour.id]
                return f"no ({reasons.setdefault(reason, len(reasons) + 1)})"
            case "wrong":
                return f"wrong (F{numbers[row.wrong[behaviour.id].fault]})"

    table = _table(
        ["", *(f"`{row.subject.name}`" for row in rows)],
        iter(
            [behaviour.title, *(cell(row, behaviour) for row in rows)]
            for behaviours in SECTIONS.values()
            for behaviour in behaviours
        ),
    )
    verdicts = [row.verdict(each) for row in rows for each in BEHAVIOURS.values()]
    yield f"## {TITLES[server]}"
    yield (
        f"{verdicts.count('passes')} checks pass, {verdicts.count('wrong')} fail for a fault of "
        f"the server, {verdicts.count('not expressible')} cannot be shown by it."
    )
    yield table
    yield "### What it cannot show\n\n" + "\n".join(
        f"{number}. {reason}" for reason, number in reasons.items()
    )
    harmless = {wrong.fault for row in rows for wrong in row.tolerated}
    yield "### What it gets wrong\n\n" + _table(
        ("", "fault", "proof"),
        (
            [
                f"F{numbers[wrong.fault]}",
                wrong.fault + (" No check fails for it." if wrong.fault in harmless else ""),
                f"`{wrong.proof.__module__.rsplit('.', 1)[1]}.{wrong.proof.__name__}`",
            ]
            for wrong in known
        ),
    )


# What the standard asks of sampling


def sampling_behaviours() -> str:
    """Every MUST and SHOULD with the tests that show it, and the gaps with their reasons."""
    every = manifest.REQUIREMENTS.values()
    counted = {status: sum(each.status == status for each in every) for status in ("shown", "gap")}
    pending = sum(each.status == "pending" for each in every)
    cells = sum(len(each.ways) for each in every if each.check is not None)
    sections = [
        f"## {title}\n\n"
        + _table(
            ("", "who", "what", "where in the standard", "shown by"),
            ([each.level, each.party, each.text, each.place, _shown(each)] for each in rows),
        )
        for title, rows in manifest.SECTIONS.items()
    ]
    gaps = "\n".join(f"- {each.text} {each.gap}" for each in every if each.gap)
    waiting = f", {pending} wait for a part that is not there yet" if pending else ""
    return "---\nhide:\n  - toc\n---\n\n" + _page(
        "What the standard asks of sampling",
        f"Every MUST and SHOULD of the revisions {' and '.join(BOTH)} about sampling, for hosts "
        "and for servers, in our own words. The official conformance suite calls no sampling "
        "callback, so these tests are the evidence. "
        f"Of {len(every)} requirements {counted['shown']} are shown by tests{waiting}, and "
        f"{counted['gap']} are gaps with a reason.",
        f"A row with ways runs over each of them, {cells} runs together: in memory, over standard "
        "input and output, and over streamable HTTP, each in the legacy and in the modern era as "
        "far as the standard allows. Run one with",
        "<!-- test: skip runs these very tests -->",
        _fence("console", "make test ARGS=\"tests/mcp/sampling -k 'rate and http-modern'\""),
        *sections,
        f"## Gaps\n\n{gaps}",
        source="tests/mcp/sampling",
    )


def _shown(row: Requirement) -> str:
    if row.gap:
        return "gap, see below"
    era = "" if row.revisions == BOTH else f", {row.revisions[0]} only"
    if row.check is not None:
        ways = "every way" if row.ways == WAYS else f"{len(row.ways)} ways"
        return f"`{row.id}`, {ways}{era}"
    names = ", ".join(f"`{test.partition('::')[2]}`" for test in row.tests)
    return f"{'pending: ' if row.status == 'pending' else ''}{names}{era}"


# The configuration


_EXAMPLES: Mapping[str, str] = {
    "budgets": (
        '[budgets.total]\nlimit_usd = 100.0\nperiod = "month"\ntimezone = "Europe/Berlin"\n\n'
        '[budgets.anthropic]\nlimit_usd = 5.0\nperiod = "day"\nprovider = "anthropic"\n'
        "hard = false\n"
    ),
    "keys": (
        f'[keys.ci]\nhash = "sha256:{"0" * 64}"\nmodels = ["default"]\n'
        "requests_per_minute = 600\ntokens_per_minute = 1_000_000\nexpires = 2027-01-31\n"
        'budget = { limit_usd = 5.0, period = "day" }\n'
    ),
    "providers": (
        '[providers.local]\nkind = "openai-chat"\nurl = "http://127.0.0.1:8000/v1"\n'
        'auth_token = "${LOCAL_KEY:-}"\nheaders = { "x-team" = "search" }'
    ),
    "models": '[models.assistant]\ntargets = ["vllm/qwen3", "embedded/smollm2"]',
    "models.prices": (
        '[models.assistant]\ntargets = ["vllm/qwen3"]\n\n'
        '[models.assistant.prices."vllm/qwen3"]\ninput = 0.1\noutput = 0.4'
    ),
    "sampling": (
        '[sampling]\napproval = "policy"\napproval_timeout_s = 60.0\n\n'
        "[sampling.servers.docs]\nmax_tokens = 1000\n"
    ),
    "sampling.servers": (
        '[sampling.servers.docs]\nmodels = ["default"]\nmax_tokens = 1000\n'
        'requests_per_minute = 20\nbudget = { limit_usd = 1.0, period = "day" }\n\n'
        '[sampling.servers."*"]\napproval = "ask"\ntools = false\n'
    ),
    "sampling.context": "[sampling.context]\nmax_resources = 5\nmax_characters = 20_000\n",
    "sampling.context.servers.NAME": (
        '[sampling.context.servers.docs]\nurl = "https://docs.example.com/mcp"\n'
        'http_headers = { authorization = "Bearer ${DOCS_TOKEN:-}" }\nkeys = ["ci"]\n'
    ),
    "storage": '[storage]\nurl = "sqlite:////var/lib/penstock/ledger.db"\nsynchronous = "full"',
    "telemetry": (
        '[telemetry]\notlp_endpoint = "http://127.0.0.1:4318"\n'
        'otlp_headers = { authorization = "Bearer ${COLLECTOR_TOKEN:-}" }\nsample_ratio = 0.1'
    ),
    "prices": "[prices]\ndefault = { input = 3.0, output = 15.0 }",
}


def configuration() -> str:
    """Every setting, with its type, default and meaning."""
    schema = Config.model_json_schema()
    definitions: Mapping[str, dict[str, Any]] = schema["$defs"]
    sections = [_section(name, prop, definitions) for name, prop in schema["properties"].items()]
    prices = _described(
        '[models.NAME.prices."TARGET"]', definitions["PriceConfig"], _EXAMPLES["models.prices"]
    )
    sections.insert([*schema["properties"]].index("models") + 1, prices)
    sections.append(
        _described(
            "[sampling.servers.NAME]",
            definitions["SamplingServerConfig"],
            _EXAMPLES["sampling.servers"],
        )
    )
    sections += [
        _described(heading, definitions[section], _EXAMPLES[heading.strip("[]")])
        for heading, section in (
            ("[sampling.context]", "ContextConfig"),
            ("[sampling.context.servers.NAME]", "ContextServerConfig"),
        )
    ]
    order = _text(load.find.__doc__).partition(";")[0]
    return _page(
        "Configuration",
        "Penstock runs without any configuration, on the embedded model. Everything else stands in "
        "one file, `penstock.toml`; `penstock init` writes one that explains itself, and `penstock "
        "doctor` checks it.",
        f"## Where it is found\n\nIn this order: {order}. `--config FILE` and "
        "`penstock.open(path)` name one outright. Without any file the built-in defaults hold: the "
        "provider `embedded`, and the model `default` on it.",
        "## Environment variables in values\n\n`${NAME}` in any text stands for the environment "
        "variable of that name, and `${NAME:-default}` for the default when it is not set. A "
        "variable that is not set and has no default is an error that names the line. Keys that "
        "stand in no file at all are read from each provider's own variable.",
        _trust(),
        "## Mistakes\n\nA key that does not exist, a value of the wrong type or out of bounds, and "
        "a target that is no target are refused, all at once, each with its line.",
        *sections,
        "## The whole file\n\nWhat `penstock init` writes:",
        _fence("toml", template()),
        source="src/penstock/config",
    )


def _trust() -> str:
    """What a file of the working folder may do without trust, and how it gets it."""
    rows = ((f"`{_dotted(path)}`", rule.reason, rule.exception) for path, rule in RULES.items())
    return "\n\n".join(
        (
            "## Trusting a folder",
            "A `penstock.toml` that is only *found* in the working folder may come from a "
            "stranger, such as a cloned repository. Most files work without a question. A file "
            "that does one of the following needs your trust first. The same holds for a relative "
            "`PENSTOCK_HOME`, for `penstock.open()`, `penstock.ask()` and generators without a "
            "provider, and for the gateway.",
            _table(["setting", "needs trust because it", "except"], iter(rows)),
            "Each `${NAME}` needs trust too, except a provider's own variable as the whole of its "
            '`auth_token`, at its own address: `auth_token = "${OPENAI_API_KEY}"` in '
            "`[providers.openai]` without `url`. A value that is the default needs none.",
            "At a terminal, the command names the lines and asks. Otherwise it stops with exit "
            "code 2 and names the command that trusts the file:",
            "<!-- test: skip needs a file that needs trust -->\n"
            + _fence("console", "penstock trust\npenstock trust --list\npenstock trust --remove"),
            "The file is trusted by its absolute path and the SHA-256 of its contents, so that "
            "each change asks again. Trust covers this file, not the files that it names. The list "
            "is `trusted.json` in `PENSTOCK_HOME`, with mode 600.",
            "- `--config FILE`, `PENSTOCK_CONFIG` and `penstock.open(path)` name a file: that is "
            "trust. So is the file in `PENSTOCK_HOME`, and what `penstock init` has written.\n"
            "- `PENSTOCK_TRUST_FOLDER`, for containers and CI: absolute paths of folders, "
            "separated as in `PATH`, in and below which files are trusted; or `1` for each working "
            "folder.\n"
            "- A file is not used at all, and `PENSTOCK_TRUST_FOLDER=1` does not cover it, when it "
            "or its folder belongs to another user (other than root) or can be written by others. "
            "`penstock trust` and a named folder cover it.\n"
            "- A gateway that runs with a found file reads it again when it changes. When it then "
            "needs trust and has none, the log says so and the running configuration stays. "
            "`penstock trust` is noticed within a second.",
            "No module, program or library of the working folder is run by a command of Penstock. "
            "For `python -m penstock`, Python itself puts the working folder on its path before "
            "any code of ours: use `penstock`, or `python -P -m penstock`, in a folder of a "
            "stranger.",
        )
    )


def _dotted(path: Sequence[str]) -> str:
    return ".".join("NAME" if piece == "*" else piece for piece in path)


def _section(name: str, prop: dict[str, Any], definitions: Mapping[str, dict[str, Any]]) -> str:
    named = "$ref" not in prop
    tables: dict[str, Any] = prop.get("patternProperties") or {"": prop.get("additionalProperties")}
    reference: str = next(iter(tables.values()))["$ref"] if named else prop["$ref"]
    section = definitions[reference.rsplit("/", 1)[1]]
    heading = f"[{name}.NAME]" if named else f"[{name}]"
    return _described(heading, section, _EXAMPLES.get(name) or _example(name, section))


def _described(heading: str, section: dict[str, Any], example: str) -> str:
    required: Sequence[str] = section.get("required", ())
    rows = (
        [f"`{key}`", _type(field), _default(key, field, required), field.get("description", "")]
        for key, field in section["properties"].items()
    )
    return "\n\n".join(
        (
            f"## `{heading}`",
            _text(section["description"]),
            _table(("setting", "type", "default", "meaning"), rows),
            _fence("toml", example),
        )
    )


def _example(name: str, section: dict[str, Any]) -> str:
    defaults = {key: field.get("default") for key, field in section["properties"].items()}
    given = [f"{key} = {json.dumps(value)}" for key, value in defaults.items() if value is not None]
    return "\n".join((f"[{name}]", *given))


def _default(key: str, field: dict[str, Any], required: Sequence[str]) -> str:
    if key in required:
        return "required"
    value = field.get("default")
    return f"`{json.dumps(value)}`" if value is not None else ""


_WORDS = {"string": "text", "integer": "whole number", "number": "number", "boolean": "true, false"}
_FORMATS = {"password": "secret text", "date-time": "date or moment"}
_TABLES = {
    "PriceConfig": "a price, as above",
    "KeyBudgetConfig": "table",
    "ContextConfig": "table, see below",
}
_BOUNDS = {
    "minimum": "at least {}",
    "exclusiveMinimum": "more than {}",
    "maximum": "at most {}",
    "exclusiveMaximum": "less than {}",
    "minItems": "at least {}",
    "pattern": "like `{}`",
}


def _type(field: dict[str, Any]) -> str:
    choices: list[dict[str, Any]] = field.get("anyOf", [field])
    kinds = [_one_type(choice) for choice in choices if choice.get("type") != "null"]
    return " or ".join(kinds).replace("|", r"\|")


def _one_type(field: dict[str, Any]) -> str:
    if "const" in field or "enum" in field:
        return ", ".join(
            f"`{json.dumps(value)}`" for value in field.get("enum", [field.get("const")])
        )
    if "$ref" in field:
        return _TABLES[field["$ref"].rsplit("/", 1)[1]]
    match field["type"]:
        case "array":
            word = f"list of {_type(field['items'])}"
        case "object":
            inner = field["additionalProperties"]
            word = "tables, see below" if "$ref" in inner else f"table of {_type(inner)}"
        case kind:
            word = _FORMATS.get(field.get("format", "")) or _WORDS[kind]
    bounds = [said.format(field[key]) for key, said in _BOUNDS.items() if key in field]
    return ", ".join((word, *bounds))


# The errors


_CATCHING = """\
import asyncio
import penstock
from penstock.testing import FakeProvider, engine_with


async def main() -> None:
    busy = FakeProvider([penstock.RateLimited("slow down", retry_after=2)])
    async with engine_with(busy) as engine:
        try:
            await engine.create_message("Hi", max_tokens=9)
        except penstock.RateLimited as error:
            print(error.provider, error.retryable, error.retry_after)
            assert error.metadata is not None
            print(error.metadata.attempts, error.metadata.cost_usd)
        except penstock.PenstockError as error:
            print("anything else:", error)


asyncio.run(main())
"""


def error_page() -> str:
    """The tree, and each class of it."""
    intro, tree, rest = _text(errors.__doc__).split("```")
    classes = [
        each
        for each in vars(errors).values()
        if isinstance(each, type) and issubclass(each, errors.PenstockError)
    ]
    rows = (
        [
            f"`{each.__name__}`",
            "yes" if each.default_retryable else "no",
            ", ".join(f"`{name}`" for name in _own_fields(each)),
            _text(each.__doc__).replace("\n", " "),
        ]
        for each in classes
    )
    return _page(
        "Errors",
        intro.strip(),
        _fence("text", tree.strip("\n")),
        rest.strip(),
        "A stream that fails before its first event raises; one that fails later ends with an "
        "`Error` event that holds the same error. Never both.",
        _fence("python", _CATCHING),
        _fence("text", "fake True 2\n1 0.0"),
        "## Each of them\n\n`retryable` is what holds unless the provider says otherwise.",
        _table(("error", "retryable", "also carries", "meaning"), rows),
        source="src/penstock/contract/errors.py",
    )


def _own_fields(kind: type[errors.PenstockError]) -> list[str]:
    common = inspect.signature(errors.PenstockError).parameters
    return [name for name in inspect.signature(kind).parameters if name not in common]


# The command line


def command_line() -> str:
    """The help of every command."""
    group: Any = typer.main.get_command(build(rich=False))
    sections = _commands(group, "penstock", None)
    return _page("Command line", *sections, source="src/penstock/cli")


def _commands(command: Any, name: str, parent: Any) -> Iterator[str]:
    context: Any = typer.Context(
        command,
        parent=parent,
        info_name=name,
        terminal_width=WIDTH,
        max_content_width=WIDTH,
        **command.context_settings,
    )
    heading = "###" if parent else "##"
    path = context.command_path
    yield f"{heading} `{path}`\n\n{_fence('text', command.get_help(context))}"
    for each, inner in getattr(command, "commands", {}).items():
        yield from _commands(inner, each, context)


# The official MCP conformance suite


_UNTESTED = {
    "sep-2640-": "skills are an extension that these servers do not declare",
    "tasks-status-notifications": "the suite has no check of it yet; ours is in `tests/mcp/tasks`",
}


_PROGRAMS = {
    "gateway.py": "the real `penstock serve`: its process, HTTP server, checks and `/mcp` "
    "endpoint, with the tools, resources and prompts that the suite asks for",
    "server.py": "the official SDK's server with Penstock's extensions, with sessions and events, "
    "on the gateway's HTTP protocol",
    "client.py": "the official SDK's client with Penstock's extensions",
}


def conformance() -> str:
    """A row for each leg, and what it could not test."""
    record = suite.recorded()
    legs = [(leg, record["legs"][leg.name]) for leg in suite.LEGS]
    extensions: Mapping[str, int] = record["legs"]["gateway-extensions"]
    tasks = {name: checks for name, checks in extensions.items() if name.startswith("tasks-")}
    untested = sorted({name for _, score in legs for name, checks in score.items() if checks == 0})
    lacking = {name: why for leg, _ in legs for name, why in leg.lacks.items()}
    return _page(
        "MCP conformance",
        "The [official conformance suite](https://github.com/modelcontextprotocol/conformance), "
        f"version {record['version']}, runs with the tests of peers. A check that fails or warns "
        "fails the test run, and so does a scenario that comes, goes or has another number of "
        "checks.",
        "<!-- test: skip runs these very tests -->",
        _fence("console", 'make test-peers ARGS="-s tests/mcp/conformance"'),
        "What each run tests:",
        _table(
            ("run", "program", "tests"),
            (
                [
                    "`penstock serve`" if name == "gateway.py" else name.removesuffix(".py"),
                    f"`tests/mcp/conformance/{name}`",
                    about,
                ]
                for name, about in _PROGRAMS.items()
            ),
        ),
        _table(
            ("run", "scenarios passed", "nothing to test", "not offered", "failed"),
            ([leg.about, *_counted(score), "0"] for leg, score in legs),
        ),
        f"## The tasks extension\n\n{sum(tasks.values())} checks pass, on `penstock serve` and on "
        "the server alike.",
        _table(
            ("scenario", "checks passed"),
            ([f"`{name}`", str(checks)] for name, checks in tasks.items()),
        ),
        "## Nothing to test",
        _table(
            ("scenario", "why"),
            (
                [f"`{name}`", next(why for key, why in _UNTESTED.items() if name.startswith(key))]
                for name in untested
            ),
        ),
        "## Not offered by `penstock serve`",
        _table(("scenario", "why"), ([f"`{name}`", why] for name, why in sorted(lacking.items()))),
        source="tests/mcp/conformance/scores.json",
    )


def _counted(score: suite.Score) -> list[str]:
    """How many scenarios passed, had nothing to test, and are not offered."""
    checks = list(score.values())
    untested, lacking = checks.count(0), checks.count(suite.NOT_OFFERED)
    return [str(len(checks) - untested - lacking), str(untested), str(lacking)]


# Tables in pages that people write


def kinds() -> str:
    """A row for each provider kind."""
    rows = (
        [
            f"`{kind.name}`",
            kind.title,
            "in this process" if kind.local else f"`{kind.url}`" if kind.url else "see its page",
            " or ".join(f"`{variable}`" for variable in kind.key_variables) or "none",
        ]
        for kind in BUILT_IN.values()
    )
    return _table(("kind", "what it is", "address", "key"), rows)


def stop_reasons() -> str:
    """A row for each documented reason why an answer ends."""
    rows = ([f"`{row.reason}`", f"`{row.meaning}`", row.used_by] for row in STOP_REASONS)
    return _table(("reason", "meaning", "used by"), rows)


def default_models() -> str:
    """What a generator uses that names a provider and no model."""

    def cell(model: str) -> str:
        return f"`{model}`" if model else ""

    rows = (
        [f"`{kind.name}`", *map(cell, (kind.model, kind.embedding_model, kind.transcription_model))]
        for kind in BUILT_IN.values()
        if kind.model or kind.embedding_model or kind.transcription_model
    )
    return _table(("provider", "text and structured", "embedding", "transcription"), rows)


def contributing() -> str:
    """CONTRIBUTING.md, which must stand at the top of the repository to be found there."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    title, _, rest = text.removeprefix("# ").partition("\n\n")
    return _page(title, rest.rstrip("\n"), source="CONTRIBUTING.md")


def price_sources() -> str:
    """Whose prices hold for which kinds."""
    kinds_of: dict[str, list[str]] = {}
    for name, source in SOURCES.items():
        if source.in_process:
            said = "none: they run in the process of Penstock"
        elif source.local:
            said = "the default price; without one, 0"
        elif source.anywhere:
            said = "at a local address the default price, without one 0; elsewhere by the address"
        elif "{" in source.provider:
            said = f"`{source.provider}` for a model that is written `MODEL:HOST`; else unknown"
        else:
            said = f"`{source.provider}`" if source.provider else "unknown: write your own"
        kinds_of.setdefault(said, []).append(f"`{name}`")
    rows = ([", ".join(names), said] for said, names in kinds_of.items())
    return _table(("kind", "prices"), rows)


def admin_endpoints() -> str:
    """A row for each endpoint of the admin API."""
    rows = (
        [f"`{method.upper()} {path}`", _names(operation), _first_paragraph(operation)]
        for path, methods in admin_document()["paths"].items()
        for method, operation in methods.items()
    )
    return _table(("endpoint", "parameters and fields", "what it does"), rows)


def _first_paragraph(operation: dict[str, Any]) -> str:
    # A blank line would end the table.
    return " ".join(operation["summary"].partition("\n\n")[0].split())


def _names(operation: dict[str, Any]) -> str:
    asked = [each["name"] for each in operation.get("parameters", ()) if each["in"] == "query"]
    body = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
    if reference := body.get("schema", {}).get("$ref"):
        schema = admin_document()["components"]["schemas"][reference.rsplit("/", 1)[1]]
        asked += schema["properties"]
    return ", ".join(f"`{name}`" for name in asked)


def admin_events() -> str:
    """A row for each live event."""
    rows = ([f"`{name}`", _text(kind.__doc__).replace("\n", " ")] for name, kind in DATA.items())
    return _table(("event", "what it holds"), rows)


PAGES: Mapping[str, Callable[[], str]] = {
    "docs/conformance.md": conformance,
    "docs/contributing.md": contributing,
    "docs/providers/matrix.md": matrix,
    "docs/providers/independent.md": independent,
    "docs/sampling-behaviours.md": sampling_behaviours,
    "docs/configuration.md": configuration,
    "docs/errors.md": error_page,
    "docs/cli.md": command_line,
}
FILES: Mapping[str, Callable[[], dict[str, Any]]] = {
    "docs/openapi.json": doors_document,
    "docs/admin-openapi.json": admin_document,
}
TABLES: Mapping[str, Callable[[], str]] = {
    "kinds": kinds,
    "stop-reasons": stop_reasons,
    "default-models": default_models,
    "price-sources": price_sources,
    "admin-endpoints": admin_endpoints,
    "admin-events": admin_events,
}


def generated(root: Path) -> Iterator[tuple[Path, str]]:
    """Every page that has something generated in it, with the text that it should have."""
    for name, make in PAGES.items():
        yield root / name, make()
    for name, document in FILES.items():
        yield root / name, json.dumps(document(), indent=1, ensure_ascii=False) + "\n"
    for path in sorted((root / "docs").rglob("*.md")):
        text = path.read_text(encoding="utf-8")
        if path.relative_to(root).as_posix() not in PAGES and _REGION.search(text):
            yield (
                path,
                _REGION.sub(lambda found: found[1] + TABLES[found[2]]() + "\n" + found[3], text),
            )


def main(arguments: Sequence[str], root: Path = ROOT) -> int:
    checking = "--check" in arguments
    stale = 0
    for path, text in generated(root):
        if path.is_file() and path.read_text(encoding="utf-8") == text:
            continue
        stale += 1
        print(path.relative_to(root), f"is stale; run: {COMMAND}" if checking else "written")
        if not checking:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    return 1 if stale and checking else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
