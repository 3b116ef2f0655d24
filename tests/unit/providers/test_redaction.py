"""No key that a provider repeats is ever shown, whoever made it and whoever repeats it."""

import html
import json
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import quote

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from penstock.contract.errors import InvalidRequest, PenstockError
from penstock.providers import anthropic, bedrock, gemini, ollama, openai_chat, openai_responses
from penstock.providers.redaction.text import without_keys
from penstock.providers.wire.dialect import Dialect

DIALECTS: Mapping[str, Dialect] = {
    "anthropic": anthropic.DIALECT,
    "bedrock": bedrock.DIALECT,
    "gemini": gemini.DIALECT,
    "ollama": ollama.DIALECT,
    "openai_chat": openai_chat.DIALECT,
    "openai_responses": openai_responses.DIALECT,
}

# Keys have capitals and digits, and all other words none, so that no word is part of a key.
CAPITALS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
PLAIN = st.text(CAPITALS, min_size=16, max_size=60) | st.text(
    "0123456789", min_size=16, max_size=40
)
# What may stand without quotes: what HTTP allows in a token, and letters of other alphabets.
BARE = PLAIN | st.text(CAPITALS + "._~+/-=!$*ÀÉÑЖД漢字", min_size=14, max_size=60).map(
    "A0{}0A".format
)
# What may stand in quotes: everything.
QUOTED = BARE | st.text(CAPITALS + " \t\\\"'`,;:&<>()[]{}%#?@|\n", min_size=14, max_size=60).map(
    "A0B1C2{}C2B1A0".format
)
KNOWN_BEGINNINGS = (
    "sk-{}",
    "sk-proj-{}",
    "sk-ant-api03-{}",
    "gsk_{}",
    "hf_{}",
    "xai-{}",
    "nvapi-{}",
    "pplx-{}",
    "csk-{}",
    "tgp_v1_{}",
    "fw_{}",
    "psk_{}",
    "ghp_{}",
    "AIza{}",
    "AQ.{}",
    "ya29.{}",
    "https://{}@host/v1",
    "AKIA{}",
    "ASIA{}",
    "ABSK{}=",
    "bedrock-api-key-{}",
    "eyJ{}.e30.{}",
    "line\\nsk-{}",
    "%22sk-{}%22",
    "\\u0022gsk_{}",
    "Basic {}",
    "Token {}",
    "ApiKey {}",
    "your api key {} is wrong",
    "bearer token {}",
    "invalid api key ({})",
    "invalid api key({}).",
    "invalid api key [{}]",
    "invalid api key <{}>",
    "invalid api key ('{}')",
    "invalid api key “{}”",
    "invalid api key <b>{}</b>",
    "the api key **{}** is wrong",
    "the api key \u2013 {} \u2013 is wrong",
    "| api key | {} |",
    "the api key you provided ({}) is wrong",
    "the api key that was sent is {}",
    "the access token you sent: {}",
    "the token '{}' is invalid",
    'the token "{}" is invalid',
    "the token `{}` is invalid",
    "the token ('{}') is invalid",
    "the token “{}” is invalid",
    "the token\n{}\nis invalid",
    "there is no key ({})",
    "there is no key {}",
    "key id {} is disabled",
    "api key starting with {}",
    "api key / {}",
    "api key...{}",
    "secret [ '{}' ]",
    "api key &lt;{}&gt;",
    "api key %28{}%29",
    "api key \\u0028{}\\u0029",
    "token &#39;{}&#39; is wrong",
    "invalid key: {}",
    "the key you gave is {}",
    "credentials <{}> were refused",
    "credential \\'{}\\' is wrong",
)
LABELLED = (
    "Bearer {}",
    "Bearer Bearer {}",
    "Bearer: {}",
    "Bearer%20{}",
    "Bearer\\n{}",
    "bearer '{}'",
    "line\\tBearer {}",
    "key={}",
    "https://host/v1?key={}&alt=sse",
    "https://host/v1?alt=sse&amp;sig={}&amp;x=1",
    "https://user:{}@host/v1",
    "api_key={}",
    "api_key%3D{}",
    "OPENAI_API_KEY={}",
    "x-api-key: {}",
    "x-api-key:\n  {}",
    "x-api-key => {}",
    '"x-api-key": "{}"',
    '{{"x-goog-api-key":["{}"]}}',
    '["x-api-key", "{}"]',
    "[(b'x-api-key', b'{}'), (b'authorization', b'Bearer {}')]",
    "{{'name': 'x-api-key', 'value': '{}'}}",
    "headers.x-api-key: wrong [type=x, input_value='{}', input_type=str]",
    "x-amz-security-token:{}",
    "Authorization: Basic {}",
    "Authorization: Basic {} Authorization: Bearer {}",
    "Authorization: Custom {}",
    'Authorization: Digest username="x", response="{}", opaque={}',
    "Cookie: session={}; other={}",
    "'authorization': 'Bearer {}'",
    "&quot;authorization&quot;: &quot;{}&quot;",
    "%22authorization%22%3A%22{}%22",
    "AWS4-HMAC-SHA256 Credential={}/us/bedrock/aws4_request, SignedHeaders=host, Signature={}",
    "?X-Amz-Credential={}&X-Amz-Signature={}",
    "aws_secret_access_key={}",
    '\\"access_token\\": \\"{}\\"',
    "incorrect api key provided: {}.",
    "api key `{}` is wrong",
    "<api_key>{}</api_key>",
    "curl -u user:{} --api-key {} -H 'authorization: Bearer {}' https://host",
    "password: {}, secret = {}; client_secret -> {}",
)
LINES = (
    "post / http\nhost: x\nx-api-key: {}\naccept: y",
    "> authorization: Bearer {}\n> accept: */*",
)
NAMES = ("x-api-key", "Authorization", "apiKey", "client_secret", "password", "x-gateway-token")
QUOTED_SHAPES: tuple[Callable[[str, str], str], ...] = (
    lambda name, key: json.dumps({"well": {name: key}}),
    lambda name, key: json.dumps({name: [key, key]}),
    lambda name, key: json.dumps([name, key]),
    lambda name, key: json.dumps({"loc": ["header", name], "input": key}),
    lambda name, key: json.dumps({"x": json.dumps({name: key})}),
    lambda name, key: f"upstream said {json.dumps({name: key, 'x': 'y'})} and no more",
    lambda name, key: html.escape(json.dumps({name: key})),
    lambda name, key: quote(json.dumps({name: key})),
    lambda name, key: f"{name}={quote(key, safe='')}",
)
STRUCTURES: tuple[Callable[[str, str], Any], ...] = (
    lambda name, key: {name: key},
    lambda name, key: {"error": {"message": key, "headers": {name: [key]}}},
    lambda name, key: {"error": {"message": "x", "request": [[name, key], ["host", "x"]]}},
    lambda name, key: {"error": [{"name": name, "value": key}]},
    lambda name, key: {"detail": [{"loc": ["header", name], "msg": f"not {key}", "input": key}]},
    lambda name, key: {"error": {"message": json.dumps({name: key})}},
    lambda name, key: [{"error": {name: {"x": {"y": [key, None, True]}}}}],
)
SHELLS: tuple[Callable[[str], Any], ...] = (
    lambda said: {"error": {"message": said}},
    lambda said: {"error": said},
    lambda said: {"message": said, "__type": "ValidationException"},
    lambda said: {"error": {"message": "x", "type": said, "code": said, "status": said}},
    lambda said: {"error": {"message": "x", "param": said, "details": {"error_code": said}}},
    lambda said: {"detail": [{"loc": ["body", said], "msg": said}]},
    lambda said: {
        "error": {"details": [{"fieldViolations": [{"field": said, "description": said}]}]}
    },
    lambda said: [{"error": {"echo": {"headers": said}}}],
    lambda said: said,
)


def everything(error: PenstockError) -> str:
    problems = error.problems if isinstance(error, InvalidRequest) else ()
    return f"{error} {error!r} {error.__dict__} {problems}"


STATUSES = st.sampled_from([200, 302, 400, 401, 403, 404, 413, 422, 429, 500, 503])
# Wherever the message is cut, and be it in the midst of a key.
WELL = st.integers(0, 120).map("well ".__mul__)


def check(dialect: Dialect, status: int, body: bytes, key: str) -> None:
    shown = everything(dialect.error(status, {}, body))
    # What stands in `repr` is escaped once more.
    for part in (key[:6], key[-6:], repr(key)[1:7]):
        assert part not in shown


@pytest.mark.parametrize("dialect", DIALECTS.values(), ids=DIALECTS)
@given(
    case=st.tuples(PLAIN, st.sampled_from(KNOWN_BEGINNINGS))
    | st.tuples(BARE, st.sampled_from(LABELLED + LINES)),
    shell=st.sampled_from(SHELLS),
    status=STATUSES,
    before=WELL,
)
@example(case=("ABCDEFGHIJKLMNOP", "gsk_{}"), shell=SHELLS[0], status=400, before="p " * 246)
@example(case=("0" * 16, "Bearer {}"), shell=SHELLS[5], status=200, before="")
def test_no_key_survives_in_any_dialect(
    *,
    dialect: Dialect,
    case: tuple[str, str],
    shell: Callable[[str], Any],
    status: int,
    before: str,
) -> None:
    secret, shape = case
    # A header begins a line, however long the text before it is.
    before += "\n" if shape in LINES and before else ""
    body = msgspec.json.encode(shell(before + shape.format(*[secret] * shape.count("{}"))))
    for sent in (body, body.decode().replace('\\"', '"').encode()):
        check(dialect, status, sent, secret)


@pytest.mark.parametrize("shape", KNOWN_BEGINNINGS + LABELLED + LINES)
@pytest.mark.parametrize("secret", ["ABCDEFGHIJKLMNOP", "0" * 16, "A1B2C3D4E5F6G7H8I9J0K1L2M3N4"])
def test_each_shape_is_masked(shape: str, secret: str) -> None:
    for text in (shape, f"well, {shape}", f"{shape} and more"):
        shown = without_keys(text.format(*[secret] * shape.count("{}")))
        assert secret not in shown
        assert without_keys(shown) == shown


@pytest.mark.parametrize("dialect", DIALECTS.values(), ids=DIALECTS)
@given(
    secret=QUOTED,
    name=st.sampled_from(NAMES),
    shape=st.sampled_from(QUOTED_SHAPES),
    shell=st.sampled_from(SHELLS),
    status=STATUSES,
    before=WELL,
)
def test_a_quoted_key_may_hold_anything(
    *,
    dialect: Dialect,
    secret: str,
    name: str,
    shape: Callable[[str, str], str],
    shell: Callable[[str], Any],
    status: int,
    before: str,
) -> None:
    check(dialect, status, msgspec.json.encode(shell(before + shape(name, secret))), secret)


@pytest.mark.parametrize("dialect", DIALECTS.values(), ids=DIALECTS)
@given(
    secret=QUOTED,
    name=st.sampled_from(NAMES),
    structure=st.sampled_from(STRUCTURES),
    status=STATUSES,
)
def test_a_field_that_holds_a_key_is_masked(
    *, dialect: Dialect, secret: str, name: str, structure: Callable[[str, str], Any], status: int
) -> None:
    check(dialect, status, msgspec.json.encode(structure(name, secret)), secret)


@pytest.mark.parametrize("dialect", DIALECTS.values(), ids=DIALECTS)
@given(
    secret=st.from_regex(r"[A-Za-z0-9][A-Za-z0-9+/_-]{20,60}[0-9]", fullmatch=True),
    status=st.sampled_from([401, 403]),
)
def test_a_refused_key_needs_no_shape(dialect: Dialect, secret: str, status: int) -> None:
    body = msgspec.json.encode({"error": {"message": f"no: {secret}"}, "message": f"no: {secret}"})
    assert secret not in everything(dialect.error(status, {}, body))


@pytest.mark.parametrize(
    "text",
    [
        "the hf-inference provider has no model sk-learn, see request-id",
        "missing required key: messages",
        "max_tokens: 5 is more than the tokens that are left",
        "the model asia-pacific.anthropic.claude is not in Asiapacificregion",
        "`input_tokens` (9) and key 'name' of tools[0]",
        "missing api key (OPENAI_API_KEY), set the key 'ANTHROPIC_API_KEY_2'",
        "unexpected token 'maxOutputTokens' in key 'response_format'",
        "unexpected token '<', \"<!DOCTYPE html>\" is not valid JSON",
        "duplicate key 'additionalProperties' (see json_schema.properties)",
        "invalid api key. claude-sonnet-4-5-20250929 needs one, request req_011CSHoEeqs5C35K",
        "no api key for claude-sonnet-4-5-20250929, see api_key_settings_2026",
        "the key is missing, the token is expired and the credentials (if any) are not read",
        "access_token_expires_at_20260101 is no field",
        "invalid value for key 'max_completion_tokens_2' in messages.0.content.1.text",
        "the key gpt-4.1-mini-2025-04-14 does not exist; key: messages.0.content.1.cache_control.",
        "the security token in the request has expired (20261119T214211Z)",
        "credentials for project my-project-12345678 are missing; token count 1234567890123456",
        "see https://platform.example.com/docs/api-keys/v2 for signature, credential and bearer",
    ],
)
def test_ordinary_words_stay(text: str) -> None:
    assert without_keys(text) == text


def test_what_is_left_tells_where_a_key_was() -> None:
    assert without_keys("bad key=abc&x=1") == "bad key=[key]&x=1"
    assert without_keys('{"x-api-key": "abc"}') == '{"x-api-key": "[key]"}'
    assert without_keys("Signature=0f, SignedHeaders=host") == (
        "Signature=[key], SignedHeaders=host"
    )


def test_a_refusal_keeps_addresses_and_words() -> None:
    said = "see https://console.example.com/settings/keys2 about authentication-requirements"
    assert without_keys(said, refused=True) == said
    assert without_keys("https://h/0123456789abcdefghij", refused=True) == "https://h/[key]"


@given(st.text())
def test_nothing_is_taken_out_twice(text: str) -> None:
    once = without_keys(text)
    assert without_keys(once) == once


ADVERSARIAL = (
    *("a", "x-", "\\", '"', '\\"', "&quot;", "%22", "%5C", "[", "<", "://", "://a:", "@", "sk-"),
    *("eyJ-", "Bearer ", "token ", "api_key: ", 'api_key="', "api_key=[", "key=", "input: "),
    *("token (", "key '", "api key ", "api key (", "key - ", "token is ", "key is was "),
    *("Authorization: a=b, ", "\nx-api-key: a", "--", "-u ", "\\u0022", "%25", '"key": "'),
)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("part", ADVERSARIAL)
def test_the_work_grows_with_the_text(part: str) -> None:
    """A quadratic search takes hours for this text."""
    without_keys(part * (100_000 // len(part)), refused=True)
