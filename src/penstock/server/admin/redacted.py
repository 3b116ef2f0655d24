"""The configuration that is in force, as it may be shown: without anything secret.

Tokens, values of headers, the admin key and the hashes of keys are masked, and so are credentials
and queries in addresses. A text that names a variable of the environment is shown as it was
written, with the name in the place of the value.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, cast

from penstock.config.settings import Config

MASK = "**********"
# A password may hold a slash that should have been escaped.
_USER_INFO = re.compile(r"(?<=://)(?:[^/?#]*|[^/?#@:]*:[^?#]*)@")
_QUERY = re.compile(r"(?<=[?&])([^=&#]*=)?[^&#]+")


def masked(config: Config) -> dict[str, dict[str, Any]]:
    """All of it that is not left out."""
    document = config.model_dump(mode="json", exclude_none=True)
    for path, text in config.written.items():
        _replace(document, path, text)
    for key in document["keys"].values():
        key["hash"] = MASK
    return cast(dict[str, dict[str, Any]], _cleaned(document))


def without_credentials(url: str) -> str:
    """An address without what stands before an `@`, and without the values of its query."""
    return _QUERY.sub(lambda found: (found[1] or "") + MASK, _USER_INFO.sub(f"{MASK}@", url))


def _replace(document: Any, path: Sequence[str | int], text: str) -> None:
    for piece in path[:-1]:
        if not isinstance(document, dict | list) or (
            isinstance(document, dict) and piece not in document
        ):
            return
        document = cast(Any, document)[piece]
    last = path[-1]
    # What is masked already stays so: a variable may have a default, and that may be the secret.
    if isinstance(document, dict) and cast(Any, document).get(last, MASK) == MASK:
        return
    document[last] = text


def _cleaned(value: Any) -> Any:
    if isinstance(value, str):
        return without_credentials(value) if "://" in value else value
    if isinstance(value, dict):
        return {name: _cleaned(each) for name, each in cast(dict[str, Any], value).items()}
    if isinstance(value, list):
        return [_cleaned(each) for each in cast(list[Any], value)]
    return value
