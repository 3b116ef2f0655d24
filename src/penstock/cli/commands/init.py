"""`penstock init`: a configuration to start from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from pathlib import Path

EXAMPLES = """\b
Examples:
  penstock init
  penstock init ~/.penstock
  penstock init ~/.penstock --model ollama/qwen3:4b
  penstock init - | less
"""


def init(
    path: Annotated[
        str,
        typer.Argument(
            metavar="PATH", help="A file, a folder, or - to print it.", show_default="penstock.toml"
        ),
    ] = "penstock.toml",
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            "-m",
            metavar="PROVIDER/MODEL",
            help="The model that answers by default.",
            show_default="the embedded one",
        ),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", "-f", help="Replace a file that is already there.")
    ] = False,
) -> None:
    """Write a penstock.toml that explains every setting."""
    from pathlib import Path

    from penstock.cli.ui import terminal
    from penstock.config.load import FILE_NAME
    from penstock.config.template import template
    from penstock.contract.errors import ConfigurationError

    text = template() if model is None else template(_known(model))
    if path == "-":
        print(text, end="")
        return
    target = Path(path).expanduser()
    in_folder = target.is_dir() or not target.suffix
    if in_folder:
        target /= FILE_NAME
    try:
        if in_folder:
            target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("w" if force else "x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError as error:
        raise ConfigurationError(
            f"{target} is already there; --force replaces it, or give another path"
        ) from error
    except OSError as error:
        raise ConfigurationError(
            f"cannot write {target}: {error.strerror}; give another path"
        ) from error
    _trust(target)
    print(f"wrote {target}")
    terminal.note("Every setting is explained in it. Check it with: penstock doctor")


def _known(model: str) -> str:
    import re

    from penstock.cli.errors import wrong
    from penstock.providers.registry import callable_names, unknown_kind

    provider = model.partition("/")[0]
    if not re.fullmatch(r"[^/\s]+/\S+", model):
        raise wrong("--model", f"{model!r} is not a model; write provider/model")
    if provider not in (known := callable_names(())):
        raise wrong("--model", unknown_kind(provider, known))
    return model


def _trust(target: Path) -> None:
    """Trust what this command has written, where that could need it."""
    from penstock.config import trust
    from penstock.contract.errors import ConfigurationError

    place = trust.in_folder(target.parent, target.name)
    try:
        trust.add(place, trust.read(trust.ConfigFile(place)).digest)
    except (OSError, ConfigurationError):
        # The list cannot be written. The file needs no trust until it is edited.
        return
