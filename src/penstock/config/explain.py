"""What is wrong with a value or with the syntax, in the words of a TOML file."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, TypeAlias

from penstock.config.names import no_such_setting

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

_Place: TypeAlias = tuple[str | int, ...]

_OF_OPEN_VALUES = {
    "bool_parsing",
    "bool_type",
    "finite_number",
    "float_parsing",
    "float_type",
    "greater_than",
    "greater_than_equal",
    "int_from_float",
    "int_parsing",
    "int_type",
    "less_than",
    "less_than_equal",
    "literal_error",
}
_WANTED = {
    "bool_parsing": "true or false",
    "bool_type": "true or false",
    "decimal_parsing": "a number",
    "decimal_type": "a number",
    "dict_type": "a table",
    "finite_number": "a finite number",
    "float_parsing": "a number",
    "float_type": "a number",
    "greater_than": "more than {gt}",
    "greater_than_equal": "at least {ge}",
    "int_from_float": "a whole number",
    "int_parsing": "a whole number",
    "int_parsing_size": "a smaller number",
    "int_type": "a whole number",
    "less_than": "less than {lt}",
    "less_than_equal": "at most {le}",
    "list_type": "a list",
    "literal_error": "{expected}",
    "model_type": "a table",
    "string_type": "a text in quotes",
    "tuple_type": "a list",
}
"""By pydantic's name of a mistake: what a setting must be, in TOML's words."""
_COUNTED = {
    "string_too_long": ("at most", "max_length", "character"),
    "string_too_short": ("at least", "min_length", "character"),
    "too_long": ("at most", "max_length", "item"),
    "too_short": ("at least", "min_length", "item"),
}
_SYNTAX = (
    ("Cannot declare", "put all its settings below one"),
    ("Cannot overwrite", "it is set already; keep one of the two"),
    ("Duplicate inline table key", "keep one of the two"),
    ("Invalid value", "write texts in quotes, decimals as 0.5, and true or false in small letters"),
    ("Illegal character '\\n'", "a text in quotes ends in its line: add the closing quote"),
    ("Unterminated string", "add the closing quote"),
    ("Expected '='", "a setting is written name = value"),
    ("Expected newline or end", "write one setting a line, and texts in quotes"),
    ("Expected ']' at the end of a table", "a table is written [name]"),
    ("Unclosed inline table", "close it with } in the same line"),
)
"""How a message of the parser begins, and what to do."""
_LINE = re.compile(r"at line (\d+), column \d+")
_TUPLE = re.compile(r"\(((?:'[^']*',? ?)+)\)")
_NAME = re.compile(r"'([^']*)'")
_MOST_TOLD = 60


def explain(item: ErrorDetails, value: object) -> str:
    """What a setting must be; `value` is what the file has there."""
    path, kind, message = item["loc"], item["type"], item["msg"]
    context = {name: _plain(each) for name, each in item.get("ctx", {}).items()}
    if kind == "extra_forbidden":
        return no_such_setting(path) + _shown(kind, value)
    if path[-1] == "[key]":
        message = "a name may hold no slash and no space"
        if path[0] == "keys":
            message = "a key's name has up to 64 letters, digits, dots, dashes and underscores"
    elif kind == "string_pattern_mismatch" or path[-1] == "hash":
        message = _form_of(path) or message
    elif kind == "missing":
        message = "is missing"
    elif kind in _WANTED:
        message = f"must be {_WANTED[kind].format(**context)}"
    elif kind in _COUNTED:
        limit, name, what = _COUNTED[kind]
        number = context[name]
        message = f"must have {limit} {number} {what}{'' if number == 1 else 's'}"
    message = message.removeprefix("Value error, ")
    return f"{message[:1].lower()}{message[1:]}{_shown(kind, value)}"


def explain_syntax(text: str, error: ValueError) -> str:
    """What is wrong with a text that is not TOML, and what to do."""
    message = _TUPLE.sub(_as_table, str(error))
    remedies = (remedy for start, remedy in _SYNTAX if message.startswith(start))
    remedy = _backslash_remedy(text, message) or next(remedies, "correct that line")
    return f"{message}; {remedy}"


def _plain(limit: Any) -> Any:
    """A whole number without `.0`."""
    return int(limit) if isinstance(limit, float) and limit.is_integer() else limit


def _as_table(found: re.Match[str]) -> str:
    return f"[{'.'.join(_NAME.findall(found[1]))}]"


def place_of(path: _Place) -> _Place:
    """The place of a value, or of a name that is wrong itself."""
    return path[:-1] if path[-1] == "[key]" else path


def _form_of(path: _Place) -> str | None:
    """How a value with a form of its own is written."""
    match path:
        case ("keys", _, "hash"):
            return "write sha256: and 64 hexadecimal digits, as `penstock keys hash` prints them"
        case ("models", *_):
            return "a target is written provider/model"
        case ("storage", "url"):
            return "a database is written sqlite:/// and a path, such as sqlite:///penstock.db"
        case ("server", "cors_origins", *_):
            return "an origin is written https://host or https://host:port; * means all"
        case ("server", "mcp_servers", *_):
            return "write the address of a server, public, or *"
        case (*_, "url" | "otlp_endpoint"):
            return "an address begins with http:// or https://"
        case _:
            return None


def _shown(kind: str, value: object) -> str:
    """The value of a choice or a number, as the file says it; other values may be secrets."""
    if kind not in _OF_OPEN_VALUES or not isinstance(value, str | int | float):
        return ""
    try:
        said = repr(value).lower() if isinstance(value, bool) else repr(value)
    except ValueError:
        # Python reads hexadecimal numbers that it refuses to write.
        return ""
    return f" (it is {said if len(said) <= _MOST_TOLD else said[:_MOST_TOLD] + '...'})"


def _backslash_remedy(text: str, message: str) -> str | None:
    """What to do about a Windows path in double quotes, where a backslash begins an escape."""
    at = _LINE.search(message)
    if at is None:
        return None
    line = text.split("\n")[int(at[1]) - 1]
    quoted = next((part for part in line.split('"')[1::2] if "\\" in part), None)
    if quoted is None:
        return None
    return f"in double quotes a backslash begins an escape: write '{quoted}' in single quotes"
