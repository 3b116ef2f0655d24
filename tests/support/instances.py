"""Random values that fit a JSON Schema, as a model would say them."""

from __future__ import annotations

import string
from random import Random
from typing import Any, TypeAlias, cast

Schema: TypeAlias = dict[str, Any]

_BY_FORMAT = {
    "date": "2024-02-29",
    "date-time": "2024-02-29T12:30:00Z",
    "uuid": "9f4e2c1a-5b7d-4e3f-8a6b-0c1d2e3f4a5b",
}
_DEEPEST = 4


def instance(schema: Schema, random: Random, *, whole: bool = False) -> Any:
    """A value that the schema takes.

    `whole` leaves out nothing that may be there, and so has no end for a type that holds itself.
    """
    return _Maker(schema, random, whole).make(schema, 0)


class _Maker:
    def __init__(self, root: Schema, random: Random, whole: bool) -> None:
        self._root = root
        self._random = random
        self._whole = whole

    def make(self, schema: Any, depth: int) -> Any:
        node = self._merged(cast(Schema, schema) if isinstance(schema, dict) else {})
        if "const" in node:
            return node["const"]
        if "enum" in node:
            return self._random.choice(node["enum"])
        kind: Any = node.get("type", "string")
        if isinstance(kind, list):
            kind = self._random.choice(cast(list[str], kind))
        return getattr(self, f"_{kind}")(node, depth)

    def _merged(self, schema: Schema) -> Schema:
        """The schema with its references and one branch of each choice taken in."""
        node = {**schema}
        while node.keys() & {"$ref", "anyOf", "oneOf", "allOf"}:
            parts: list[Schema] = [*node.pop("allOf", ())]
            choices = [node.pop(key) for key in ("anyOf", "oneOf") if key in node]
            parts += map(self._random.choice, choices)
            if "$ref" in node:
                parts.append(self._target(node.pop("$ref")))
            for part in parts:
                node = {**part, **{key: node[key] for key in node if key != "description"}}
        return node

    def _target(self, reference: str) -> Schema:
        place = self._root
        for step in reference.removeprefix("#").strip("/").split("/"):
            place = place[step.replace("~1", "/").replace("~0", "~")] if step else place
        return place

    def _object(self, node: Schema, depth: int) -> Any:
        required = node.get("required", ())
        made = {
            name: self.make(inner, depth + 1)
            for name, inner in node.get("properties", {}).items()
            if name in required or self._goes_on(depth)
        }
        if node.get("additionalProperties") and self._goes_on(depth):
            made["some key"] = self.make(node["additionalProperties"], depth + 1)
        return made

    def _array(self, node: Schema, depth: int) -> list[Any]:
        first: list[Any] = node.get("prefixItems", [])
        least = max(node.get("minItems", 0), len(first))
        most = node.get("maxItems", least + 2) if depth < _DEEPEST else least
        size = self._random.randint(least, max(least, min(most, least + 2)))
        kinds = [*first, *[node.get("items", {})] * (size - len(first))]
        made = [self.make(kind, depth + 1) for kind in kinds]
        return list(dict.fromkeys(made)) if node.get("uniqueItems") else made

    def _goes_on(self, depth: int) -> bool:
        return self._whole or (depth < _DEEPEST and self._random.random() < 0.7)

    def _integer(self, node: Schema, _: int) -> int:
        return self._random.randint(node.get("minimum", 0), node.get("maximum", 50))

    def _number(self, node: Schema, _: int) -> float:
        return self._random.randint(node.get("minimum", 0), node.get("maximum", 50)) / 4

    def _string(self, node: Schema, _: int) -> str:
        if node.get("format") in _BY_FORMAT:
            return _BY_FORMAT[node["format"]]
        size = self._random.randint(max(node.get("minLength", 0), 3), node.get("maxLength", 8))
        return "".join(self._random.choices(string.ascii_letters + "é∂🙂", k=size))

    def _boolean(self, *_: Any) -> bool:
        return self._random.random() < 0.5

    def _null(self, *_: Any) -> None:
        return None
