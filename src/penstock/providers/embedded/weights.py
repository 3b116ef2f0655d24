"""Finds the file behind a model's name: the bundled weights, or any GGUF file of the user's."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from penstock.contract.errors import ConfigurationError, ModelNotFound
from penstock.providers.embedded.files import BUNDLED_MODULE, not_installed, package_folder

BUNDLED = "smollm2"
DEFAULT = "default"
BUNDLED_CONTEXT = 8192

_GGUF_MAGIC = b"GGUF"


@dataclass(frozen=True, slots=True)
class Weights:
    """A model file and the name that answers carry."""

    name: str
    path: Path


def own_file(model: str, model_path: str | None) -> Path | None:
    """The user's own file that this name stands for; None when it is not such a name.

    Such a name is a path that ends in `.gguf`, or, with the provider's `model_path`, `default` and
    the file's name without its ending.
    """
    if model.endswith(".gguf"):
        return Path(model).expanduser()
    if model_path is not None and model in (DEFAULT, Path(model_path).stem):
        return Path(model_path).expanduser()
    return None


def find(model: str, model_path: str | None = None) -> Weights:
    """The weights of this model; the error of a missing one names the remedy."""
    if (path := own_file(model, model_path)) is not None:
        return Weights(path.stem, _checked(path))
    if model in (BUNDLED, DEFAULT):
        return Weights(BUNDLED, _bundled())
    raise ModelNotFound(
        f"there is no embedded model {model!r}; use {BUNDLED!r}, or the path of a .gguf file"
    )


def _bundled() -> Path:
    files = sorted(package_folder(BUNDLED_MODULE).glob("*.gguf"))
    if not files:
        raise not_installed()
    return files[0]


def _checked(path: Path) -> Path:
    if path.exists() and not path.is_file():
        # Opening a pipe or a device could wait for ever.
        raise ConfigurationError(f"{path} is not a file; give the path of a .gguf file")
    try:
        with path.open("rb") as file:
            magic = file.read(len(_GGUF_MAGIC))
    except FileNotFoundError as error:
        raise ModelNotFound(
            f"there is no model file {path}; give the path of a .gguf file that exists"
        ) from error
    except OSError as error:
        raise ConfigurationError(f"cannot read the model file {path}: {error.strerror}") from error
    if magic != _GGUF_MAGIC:
        raise ConfigurationError(
            f"{path} is not a GGUF file; convert the model to GGUF, or give the path of one"
        )
    return path.resolve()
