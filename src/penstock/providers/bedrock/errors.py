"""What goes wrong on this wire, as errors of Penstock.

The exception's name decides (header `x-amzn-errortype`, `__type` or `code` in the body, the
exception type of a stream's message), and the status where the name says nothing. A message's
wording is shown to people and never searched: so a prompt that is too long, which AWS reports as
any other ValidationException, is InvalidRequest.

| exception | status | error |
|---|---|---|
| ThrottlingException, TooManyRequestsException | 429 | RateLimited |
| ServiceQuotaExceededException | 400 | RateLimited that is not retryable |
| AccessDeniedException and all about signatures and tokens | 401, 403 | AuthenticationFailed |
| ResourceNotFoundException | 404 | ModelNotFound |
| ValidationException | 400 | InvalidRequest |
| ModelNotReadyException | 429 | ProviderUnavailable |
| ModelTimeoutException | 408 | ProviderUnavailable |
| ModelErrorException, modelStreamErrorException | 424 | ProviderUnavailable |
| InternalServerException, ServiceUnavailableException | 5xx | ProviderUnavailable |
| any other | 4xx, 5xx | by the status |
| none | another status | MalformedResponse, not retryable: the url leads somewhere else |
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from typing import Any, cast

import msgspec

from penstock.contract.errors import (
    AuthenticationFailed,
    InvalidRequest,
    MalformedResponse,
    ModelNotFound,
    PenstockError,
    Problem,
    ProviderUnavailable,
    RateLimited,
)
from penstock.providers.retry_after import retry_after

_MESSAGE_LIMIT = 500
_NAME_LIMIT = 80

_STATUS_OF_NAME: Mapping[str, int] = {
    "accessdeniedexception": 403,
    "expiredtoken": 403,
    "expiredtokenexception": 403,
    "incompletesignature": 403,
    "incompletesignatureexception": 403,
    "internalfailure": 500,
    "internalserverexception": 500,
    "invalidclienttokenid": 403,
    "invalidsignatureexception": 403,
    "missingauthenticationtoken": 403,
    "missingauthenticationtokenexception": 403,
    "modelerrorexception": 424,
    "modelnotreadyexception": 503,
    "modelstreamerrorexception": 424,
    "modeltimeoutexception": 408,
    "notauthorized": 403,
    "optinrequired": 403,
    "requestexpired": 403,
    "resourcenotfoundexception": 404,
    "servicequotaexceededexception": 402,
    "serviceunavailable": 503,
    "serviceunavailableexception": 503,
    "signaturedoesnotmatch": 403,
    "throttling": 429,
    "throttlingexception": 429,
    "toomanyrequestsexception": 429,
    "unrecognizedclientexception": 403,
    "validationerror": 400,
    "validationexception": 400,
}
"""What each exception amounts to, as the status that says the same on any other wire."""

# Access keys, bearer tokens of Bedrock, and whatever follows "Bearer".
_KEY = re.compile(
    r"\b(?:AKIA|ASIA)[A-Z0-9]{12,}|\bABSK[\w+/=]{12,}|\bbedrock-api-key-\S+|\bbearer\s+\S+",
    re.IGNORECASE,
)
# A refused signature is answered with the request as it should have been signed, tokens and all.
_LONG_WORD = re.compile(r"(?=[\w*+/=-]*\d)[\w*+/=-]{20,}")
_SPACE = re.compile(r"\s+")


def map_error(status: int, headers: Mapping[str, str], body: bytes) -> PenstockError:
    """The error that an answer with this status stands for; header names are lower-case."""
    name, message = _read(body)
    name = _plain(headers.get("x-amzn-errortype", "")) or name
    implied = _STATUS_OF_NAME.get(name.lower())
    error = _build(name, message, implied or (status if status >= 400 else None), status)
    if error.retryable:
        error.retry_after = retry_after(_with_pause(headers), time.time())
    return error


def map_stream_error(headers: Mapping[str, str], payload: bytes) -> PenstockError:
    """The error that a message of a stream stands for: an exception, or an error by its headers."""
    name, message = _read(payload) if payload else ("", "")
    name = _plain(headers.get(":exception-type") or headers.get(":error-code") or "") or name
    message = _shorten(headers.get(":error-message", "")) or message
    return _build(name, message, _STATUS_OF_NAME.get(name.lower(), 500), None)


def _build(name: str, message: str, status: int | None, shown: int | None) -> PenstockError:
    """`status` classifies and `shown` is reported; they differ where the name says more."""
    message = _KEY.sub("[key]", message)
    if status in (401, 403):
        message = _LONG_WORD.sub("[key]", message)
    what = "with an error" if shown is None else str(shown)
    text = f"Bedrock answered {what}{f' ({name})' if name else ''}: {message or 'no message'}"
    error = _classify(status, text, message)
    error.status = shown
    return error


def _classify(status: int | None, text: str, message: str) -> PenstockError:
    if status is None:
        return MalformedResponse(f"{text}; check the url", retryable=False)
    if status >= 500 or status in (408, 409, 424):
        return ProviderUnavailable(text, retryable=status != 501)
    if status in (402, 429):
        return RateLimited(text, retryable=status == 429)
    if status in (401, 403):
        return AuthenticationFailed(text)
    if status == 404:
        return ModelNotFound(f"{text}; check the model's name and the region")
    return InvalidRequest(text, problems=(Problem("", message),))


def _with_pause(headers: Mapping[str, str]) -> Mapping[str, str]:
    """AWS names the pause in a header of its own, in milliseconds."""
    pause = headers.get("x-amz-retry-after")
    return headers if pause is None else {**headers, "retry-after-ms": pause}


def _read(body: bytes) -> tuple[str, str]:
    """The name and the message in a body, whatever it is."""
    try:
        value: Any = msgspec.json.decode(body)
    except (ValueError, RecursionError):
        text = body[: 4 * _MESSAGE_LIMIT].decode("utf-8", "replace").strip()
        if not text:
            return "", "an empty body"
        # The page of a proxy says nothing that its status has not said.
        html = text.startswith("<")
        return "", "an HTML page instead of JSON" if html else _shorten(text)
    if not isinstance(value, dict):
        return "", _shorten(msgspec.json.encode(value).decode())
    found = cast(dict[str, Any], value)
    name = next((found[key] for key in ("__type", "code") if isinstance(found.get(key), str)), "")
    keys = ("message", "Message", "errorMessage", "originalMessage")
    said = next((found[key] for key in keys if isinstance(found.get(key), str)), "")
    return _plain(name), _shorten(said)


def _plain(name: str) -> str:
    """The bare name out of `namespace#Name:http://...`."""
    return _shorten(name.partition(":")[0].rpartition("#")[2].strip(), _NAME_LIMIT)


def _shorten(text: str, limit: int = _MESSAGE_LIMIT) -> str:
    text = _SPACE.sub(" ", text[: 4 * limit]).strip()
    return text if len(text) <= limit else text[: limit - 1] + "…"
