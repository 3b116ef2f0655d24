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

from collections.abc import Mapping

from penstock.contract.errors import PenstockError, Problem
from penstock.providers.wire import error_text

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

# The model's own failure is a 424.
_PASSING = (408, 409, 424)


def map_error(status: int, headers: Mapping[str, str], body: bytes) -> PenstockError:
    """The error that an answer with this status stands for; header names are lower-case."""
    name, message = _read(body)
    name = _plain(headers.get("x-amzn-errortype", "")) or name
    implied = _STATUS_OF_NAME.get(name.lower())
    error = _classify(name, message, implied or (status if status >= 400 else None), status)
    return error_text.answered(error, status, _with_pause(headers))


def map_stream_error(headers: Mapping[str, str], payload: bytes) -> PenstockError:
    """The error that a message of a stream stands for: an exception, or an error by its headers."""
    name, message = _read(payload) if payload else ("", "")
    name = _plain(headers.get(":exception-type") or headers.get(":error-code") or "") or name
    message = headers.get(":error-message", "") or message
    return _classify(name, message, _STATUS_OF_NAME.get(name.lower(), 500), None)


def _classify(name: str, message: str, status: int | None, came: int | None) -> PenstockError:
    """`status` classifies and `came` is told; they differ where the name says more."""
    message = error_text.shown(message, refused=error_text.is_refusal(status))
    return error_text.by_status(
        status,
        error_text.sentence(message, came, name=name, who="Bedrock"),
        (Problem("", message),),
        passing=_PASSING,
        not_found="check the model's name and the region",
    )


def _with_pause(headers: Mapping[str, str]) -> Mapping[str, str]:
    """AWS names the pause in a header of its own, in milliseconds."""
    pause = headers.get("x-amz-retry-after")
    return headers if pause is None else {**headers, "retry-after-ms": pause}


def _read(body: bytes) -> tuple[str, str]:
    """The name and the message in a body, whatever it is."""
    value = error_text.read_body(body)
    if not isinstance(value, dict):
        return "", error_text.text_of(value)
    found = error_text.object_of(value)
    name = next((found[key] for key in ("__type", "code") if isinstance(found.get(key), str)), "")
    keys = ("message", "Message", "errorMessage", "originalMessage")
    said = next((found[key] for key in keys if isinstance(found.get(key), str)), "")
    return _plain(name), said


def _plain(name: str) -> str:
    """The bare name out of `namespace#Name:http://...`."""
    return error_text.name_of(name.partition(":")[0].rpartition("#")[2].strip())
