"""JSON of answers: `to_dict()`, and what pydantic and FastAPI need to serialise them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from penstock.contract.messages import JSONObject


class Serializable(msgspec.Struct, frozen=True):
    """A struct that pydantic models may hold and FastAPI may return."""

    def to_dict(self) -> JSONObject:
        """All that is known, ready for `json.dumps`: numbers as numbers, no key without a value."""
        raise NotImplementedError

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        """The items of `to_dict()`, so that `dict(result)` works: FastAPI calls it."""
        return iter(self.to_dict().items())

    # Called by pydantic while it builds the schema of a model or a response.
    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        from pydantic_core import core_schema as core  # the contract itself does without pydantic

        written = core.plain_serializer_function_ser_schema(
            cls.to_dict, return_schema=core.dict_schema()
        )
        return core.is_instance_schema(cls, serialization=written)

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: Any, handler: Any) -> JSONObject:
        return {"type": "object", "title": cls.__name__}


def known(facts: JSONObject) -> JSONObject:
    """The facts that have a value."""
    return {key: value for key, value in facts.items() if value is not None}
