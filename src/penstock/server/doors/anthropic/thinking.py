"""Signatures of thinking, on their way through a client and back.

This wire's `signature` is one opaque text, and what a provider needs back is more: who signed it,
and what its dialect keeps beside it. So the signature of anybody but Anthropic's Claude is sealed:
all of that in one text, which clients send back unchanged as they do with Anthropic's own. Claude's
goes out and comes in as it is, so that conversations may begin here and go on there.
"""

from __future__ import annotations

import base64

import msgspec

from penstock.contract.errors import InvalidRequest, Problem
from penstock.contract.messages import JSONObject, Reasoning

CLAUDE = "anthropic-claude"
"""The origin of thinking whose signature stands on this wire as it is."""
_MARK = "penstock."


class _Sealed(msgspec.Struct, array_like=True, frozen=True):
    origin: str | None
    signature: str
    meta: JSONObject | None = None


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_Sealed).decode


def seal(part: Reasoning) -> str:
    """The signature as it goes out; empty for thinking that nobody signed."""
    if part.signature is None:
        return ""
    if part.origin == CLAUDE and not part.meta:
        return part.signature
    sealed = _encode(_Sealed(part.origin, part.signature, part.meta))
    return _MARK + base64.urlsafe_b64encode(sealed).decode()


def unseal(text: str, signature: str | None, path: str, *, redacted: bool = False) -> Reasoning:
    """The thinking with this signature; raises InvalidRequest when somebody changed it."""
    if not signature:
        return Reasoning(text)
    if not signature.startswith(_MARK):
        return Reasoning(text, signature=signature, redacted=redacted, origin=CLAUDE)
    try:
        # Strictly, or characters that somebody put in would pass.
        written = signature.removeprefix(_MARK).encode()
        sealed = _decode(base64.b64decode(written, altchars=b"-_", validate=True))
    except (ValueError, RecursionError) as error:
        problem = Problem(path, "is not as this gateway gave it; send it back unchanged")
        raise InvalidRequest.of([problem]) from error
    return Reasoning(
        text,
        signature=sealed.signature,
        redacted=redacted,
        origin=sealed.origin,
        meta=sealed.meta,
    )
