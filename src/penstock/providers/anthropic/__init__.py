"""Anthropic's Messages wire, and every compatible server's."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.providers.anthropic import catalogue, count, decode, encode, errors, models, resume
from penstock.providers.wire.dialect import CountDialect, Dialect, ModelListDialect

_KEY = "sk-ant-"
_OAUTH_TOKEN = "sk-ant-oat"  # noqa: S105


def authorize(key: str) -> Mapping[str, str]:
    """The header that carries the key.

    Anthropic's keys begin with `sk-ant-` and go into `x-api-key`. Its OAuth tokens (`sk-ant-oat`)
    and whatever another server or gateway has given out are bearer tokens.
    """
    if key.startswith(_KEY) and not key.startswith(_OAUTH_TOKEN):
        return {"x-api-key": key}
    return {"authorization": f"Bearer {key}"}


DIALECT = Dialect(
    name=encode.DIALECT,
    framing="sse",
    encode=encode.encode,
    decode=lambda body, headers: decode.decode(body),
    stream_decoder=lambda headers: decode.MessageStreamDecoder(),
    error=errors.map_error,
    models=ModelListDialect(lambda url, options: models.call(options), models.decode),
    authorize=authorize,
    further=decode.further,
    catalogue=catalogue.CATALOGUE,
    count=CountDialect(count.encode, count.decode),
    resume=resume.resume,
)
