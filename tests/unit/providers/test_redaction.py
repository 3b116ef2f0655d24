"""No key that a provider repeats is ever shown, whoever made it and whoever repeats it."""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from penstock.contract.errors import InvalidRequest, PenstockError
from penstock.providers import anthropic, bedrock, gemini, ollama, openai_chat, openai_responses
from penstock.providers.dialect import Dialect
from penstock.providers.redaction import without_keys

DIALECTS: Mapping[str, Dialect] = {
    "anthropic": anthropic.DIALECT,
    "bedrock": bedrock.DIALECT,
    "gemini": gemini.DIALECT,
    "ollama": ollama.DIALECT,
    "openai_chat": openai_chat.DIALECT,
    "openai_responses": openai_responses.DIALECT,
}

# Keys have capitals and digits only, and all other words none, so that no word is part of a key.
SECRETS = st.text("ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789", min_size=16, max_size=60)
SHAPES = (
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
    "AIza{}",
    "AQ.{}",
    "ya29.{}",
    "AKIA{}",
    "ASIA{}",
    "ABSK{}=",
    "bedrock-api-key-{}",
    "eyJ{}.e30.{}",
    "Bearer {}",
    "key={}",
    "https://host/v1?key={}&alt=sse",
    "api_key={}",
    "x-api-key: {}",
    '"x-api-key": "{}"',
    '{{"x-goog-api-key":["{}"]}}',
    "x-amz-security-token:{}",
    "Authorization: Basic {}",
    "'authorization': 'Bearer {}'",
    "AWS4-HMAC-SHA256 Credential={}/us/bedrock/aws4_request, SignedHeaders=host, Signature={}",
    "?X-Amz-Credential={}&X-Amz-Signature={}",
    "aws_secret_access_key={}",
    '\\"access_token\\": \\"{}\\"',
    "incorrect api key provided: {}.",
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


@pytest.mark.parametrize("dialect", DIALECTS.values(), ids=DIALECTS)
@given(
    secret=SECRETS,
    shape=st.sampled_from(SHAPES),
    shell=st.sampled_from(SHELLS),
    status=st.sampled_from([200, 302, 400, 401, 403, 404, 413, 429, 500, 503]),
    # Wherever the message is cut, and be it in the midst of a key.
    before=st.integers(0, 120).map(lambda words: "well " * words),
)
@example(secret="ABCDEFGHIJKLMNOP", shape="gsk_{}", shell=SHELLS[0], status=400, before="p " * 246)
def test_no_key_survives_in_any_dialect(
    *,
    dialect: Dialect,
    secret: str,
    shape: str,
    shell: Callable[[str], Any],
    status: int,
    before: str,
) -> None:
    body = msgspec.json.encode(shell(before + shape.format(*[secret] * shape.count("{}"))))
    for sent in (body, body.decode().replace('\\"', '"').encode()):
        assert secret[:6] not in everything(dialect.error(status, {}, sent))


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
