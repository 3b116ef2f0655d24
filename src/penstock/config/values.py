"""What the tables of the file have in common, and the kinds of values that several of them take."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints

from penstock.contract.checks.spelling import refuse_unknown


class _NameSuggesting(type(BaseModel)):
    """Sections that are made in code name the setting that was probably meant."""

    if not TYPE_CHECKING:  # a type checker knows the fields by themselves

        def __call__(cls, *args: Any, **kwargs: Any) -> Any:
            """Make one; files are read another way, and their problems are worded elsewhere."""
            refuse_unknown(f"{cls.__name__}()", kwargs, cls.model_fields)
            return super().__call__(*args, **kwargs)


class Section(BaseModel, metaclass=_NameSuggesting):
    """A table of the file; unknown keys are errors, so that a typo cannot go unnoticed."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def _known_zone(name: str) -> str:
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ValueError(f"{name!r} is not a time zone: give one such as Europe/Berlin") from None
    return name


def _without_escapes(path: str) -> str:
    found = next((each for each in path if each in _ESCAPES), None)
    if found is not None:
        meant = "".join(_ESCAPES.get(each, each) for each in path)
        raise ValueError(
            f"in double quotes {_ESCAPES[found]} is a control character: write '{meant}' in "
            "single quotes"
        )
    return path


_ESCAPES = {"\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r"}
"""What TOML makes of the backslashes of a Windows path, and how they were written."""
FilePath = Annotated[str, AfterValidator(_without_escapes)]
DatabaseURL = Annotated[
    str, AfterValidator(_without_escapes), StringConstraints(pattern=r"^sqlite:///.+$")
]
Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Usd = Annotated[float, Field(ge=0, allow_inf_nan=False)]
TargetName = Annotated[str, StringConstraints(pattern=r"^[^/\s]+/\S+$")]
Name = Annotated[str, StringConstraints(pattern=r"^[^/\s]+$")]
KeyName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
Zone = Annotated[str, AfterValidator(_known_zone)]
