"""What `import penstock` offers, what it costs, and that neither changes unnoticed."""

import inspect
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import pytest

import penstock

SNAPSHOT = Path(__file__).with_name("public_surface.txt")
UPDATE = "UPDATE_SURFACE"
HEAVY = {
    "aiohttp",
    "asyncio",
    "genai_prices",
    "granian",
    "numpy",
    "pydantic",
    "rich",
    "ssl",
    "typer",
    "urllib.request",
    "uvicorn",
    "uvloop",
    "wordllama",
    "xllamacpp",
}


def fresh_interpreter(code: str) -> Any:
    """What this code prints as JSON in an interpreter of its own."""
    process = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    return json.loads(process.stdout)


def test_the_list_of_names_is_sorted_complete_and_importable() -> None:
    assert penstock.__all__ == sorted(set(penstock.__all__))
    assert dir(penstock) == penstock.__all__
    for name in penstock.__all__:
        assert getattr(penstock, name) is not None
    public = {
        name
        for name, value in vars(penstock).items()
        if not name.startswith("_") and not inspect.ismodule(value)
    }
    assert public - {"TYPE_CHECKING", "Any", "annotations"} <= set(penstock.__all__)


def test_every_public_name_is_documented() -> None:
    for name in penstock.__all__:
        value = getattr(penstock, name)
        if inspect.isclass(value) or inspect.isfunction(value):
            assert value.__doc__, name


def test_a_name_that_does_not_exist_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'penstock' has no attribute 'nonsense'"):
        getattr(penstock, "nonsense")  # noqa: B009 - a name that the type checker refuses


def test_importing_the_package_imports_nothing_heavy() -> None:
    imported = fresh_interpreter(
        "import json, sys; before = set(sys.modules); import penstock; "
        "print(json.dumps(sorted(set(sys.modules) - before)))"
    )
    assert "penstock" in imported
    assert HEAVY & set(imported) == set()
    ours = {name for name in imported if name.startswith("penstock.")}
    assert {name.split(".")[1] for name in ours} == {"_version", "contract", "runtime"}


def test_opening_an_engine_imports_no_http_client_and_no_model() -> None:
    imported = fresh_interpreter(
        "import json, sys, penstock; penstock.open(penstock.Config()); "
        "print(json.dumps(sorted(sys.modules)))"
    )
    unneeded = {"aiohttp", "granian", "numpy", "rich", "typer", "wordllama", "xllamacpp"}
    assert unneeded & set(imported) == set()


def test_everything_can_be_imported_at_once() -> None:
    names = fresh_interpreter(
        "import json; from penstock import *; print(json.dumps(sorted(globals())))"
    )
    assert set(penstock.__all__) <= set(names)


def test_the_surface_is_the_one_that_was_agreed_on() -> None:
    now = "\n".join(surface()) + "\n"
    if os.environ.get(UPDATE):
        SNAPSHOT.write_text(now, encoding="utf-8")
    before = SNAPSHOT.read_text(encoding="utf-8") if SNAPSHOT.exists() else ""
    assert now == before, (
        "The public surface has changed. If that is meant, say so in CHANGELOG.md and run "
        f"`{UPDATE}=1 make test ARGS='-k public_surface'`; the difference then shows in review."
    )


def surface(module: ModuleType = penstock, prefix: str = "") -> Iterator[str]:
    """Each public name with its signature, its fields or its methods, a line each."""
    for name in module.__all__:
        value = getattr(module, name)
        full = prefix + name
        if inspect.ismodule(value):
            yield from surface(value, f"{full}.")
        elif inspect.isclass(value):
            yield f"class {full}({', '.join(base.__name__ for base in value.__bases__)})"
            # Fields in their order, for it is that of the positional arguments.
            yield from (f"    {line}" for line in (*fields(value), *sorted(methods(value))))
        elif inspect.isfunction(value):
            yield f"def {full}{inspect.signature(value)}"
        elif name != "__version__":
            parts = (getattr(part, "__name__", str(part)) for part in value.__args__)
            yield f"{full} = {' | '.join(parts)}"


def methods(kind: type[Any]) -> Iterator[str]:
    seen: set[str] = set()
    for owner in kind.__mro__:
        if not owner.__module__.startswith("penstock"):
            continue
        for name, value in vars(owner).items():
            if name.startswith("_") and name not in {"__init__", "__add__", "__aiter__"}:
                continue
            if name in seen:
                continue
            seen.add(name)
            if isinstance(value, property):
                assert value.fget is not None
                yield f"{name}: property{inspect.signature(value.fget)}"
            elif isinstance(value, classmethod):
                yield f"classmethod {name}{inspect.signature(getattr(kind, name))}"
            elif inspect.isfunction(value) and (owner is kind or own(owner)):
                prefix = "async def" if inspect.iscoroutinefunction(value) else "def"
                yield f"{prefix} {name}{inspect.signature(value)}"


def own(base: type[Any]) -> bool:
    """Whether what this base offers is shown nowhere but at the classes that have it."""
    return base.__name__ not in penstock.__all__


def fields(kind: type[Any]) -> Iterator[str]:
    annotations: dict[str, str] = {}
    for owner in reversed(kind.__mro__):
        annotations |= vars(owner).get("__annotations__", {})
    if issubclass(kind, msgspec.Struct):
        for field in msgspec.structs.fields(kind):
            yield f"{field.name}: {annotations[field.name]}{'' if field.required else ' = ...'}"
    elif fields := getattr(kind, "model_fields", None):
        yield from (f"{name}: {annotations[name]}" for name in fields)
