"""A provider's own secrets are taken out of what its server repeats."""

from __future__ import annotations

import base64
import html
import json
import re
from collections.abc import Callable, Mapping
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import penstock
from penstock import Config, InvalidRequest, PenstockError
from penstock.config.settings import ProviderConfig
from penstock.contract.errors import Problem, ProviderUnavailable
from penstock.providers.redaction.own_secrets import mask_bytes, mask_error, mask_text
from tests.support.raw import RawServer, answering, whole

SECRET = 'k3y/with+odd="chars\\'
FORMS = (
    SECRET,
    quote(SECRET, safe=""),
    'k3y/with+odd=\\"chars\\\\',
    base64.b64encode(SECRET.encode()).decode().rstrip("="),
)


@pytest.mark.parametrize("form", FORMS)
def test_a_secret_is_found_in_every_form(form: str) -> None:
    assert mask_text(f"bad key {form}!", [SECRET]) == "bad key ***!"
    assert mask_bytes(f"bad key {form}!".encode(), [SECRET]) == b"bad key ***!"


def test_the_words_of_a_header_are_secrets_too() -> None:
    assert mask_text("you sent abcdefgh12", ["Bearer abcdefgh12"]) == "you sent ***"


@pytest.mark.parametrize("text", ["you sent k3y/with+o…", "you sent k3y/with", "k3y/with+…; see"])
def test_the_beginning_of_a_secret_is_no_rest(text: str) -> None:
    assert "k3y" not in mask_text(text, [SECRET])


def test_ordinary_words_stay() -> None:
    text = "the model m is not known; k3y…"
    assert mask_text(text, ["m", "model", SECRET]) == text


def test_problems_are_masked_and_causes_that_tell_are_cut_off() -> None:
    error = InvalidRequest(f"no: {SECRET}", problems=[Problem(SECRET, SECRET)])
    error.__cause__ = ProviderUnavailable(SECRET)
    error.__cause__.__cause__ = ValueError(SECRET)
    error.__context__ = KeyError("harmless")
    mask_error(error, [SECRET])
    assert (str(error), error.message) == ("no: ***", "no: ***")
    assert error.problems == (Problem("***", "***"),)
    assert str(error.__cause__) == "***"
    assert error.__cause__.__cause__ is None
    assert isinstance(error.__context__, KeyError)


async def test_no_half_is_left_where_the_dialect_knows_a_part_of_the_key() -> None:
    """What begins like a key of OpenAI's is masked by its shape, which may end too early."""
    key = "sk-abcdefghijklmnop/qrstuvwxyz+0123456789"
    body = b'{"error": {"message": "Incorrect key: ' + key.encode() + b'"}}'
    async with RawServer(answering(whole(body, status="400 Bad Request"))) as server:
        settings = {"kind": "openai", "url": server.url, "auth_token": key}
        config = Config(providers={"one": ProviderConfig.model_validate(settings)})
        async with penstock.open(config) as engine:
            with pytest.raises(PenstockError, match=r"Incorrect key: \*\*\*") as caught:
                await engine.create_message("Hi", max_tokens=9, model="one/m")
    assert "qrstuvwxyz" not in f"{caught.value!r} {vars(caught.value)}"


USUAL: Mapping[str, Callable[[str], str]] = {
    "as it is": str,
    "upper case": str.upper,
    "lower case": str.lower,
    "url": lambda text: quote(text, safe=""),
    "url, small digits": lambda text: re.sub("%..", lambda it: it[0].lower(), quote(text, safe="")),
    "form": quote_plus,
    "json": lambda text: json.dumps(text)[1:-1],
    "json, slashes": lambda text: json.dumps(text)[1:-1].replace("/", "\\/"),
}
"""Only marks are written otherwise, so that each may be applied to what another has made."""
ENCODINGS: Mapping[str, Callable[[str], str]] = {
    **USUAL,
    "url, all of it": lambda text: "".join(f"%{byte:02X}" for byte in text.encode()),
    "json, all of it": lambda text: "".join(f"\\u{ord(each):04X}" for each in text),
    "html": html.escape,
    "html, decimal": lambda text: "".join(f"&#{ord(each)};" for each in text),
    "html, hexadecimal": lambda text: "".join(f"&#x{ord(each):X};" for each in text),
}
DIGESTS: Mapping[str, Callable[[str], str]] = {
    **{
        f"base64 behind {before!r}": lambda text, before=before: base64.b64encode(
            f"{before}{text}".encode()
        ).decode()
        for before in ("", "u:", "me:", "user:", "Bearer ")
    },
    "base64 for urls": lambda text: base64.urlsafe_b64encode(text.encode()).decode().rstrip("="),
    "base64 in lines": lambda text: "\n".join(
        re.findall(".{1,20}", base64.b64encode(text.encode()).decode())
    ),
    "hexadecimal": lambda text: text.encode().hex(),
    "hexadecimal, capitals": lambda text: text.encode().hex().upper(),
}
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
KEYS = st.text(LETTERS, min_size=20, max_size=60) | st.text(
    LETTERS + "-_./+=:~!$&%\\\"'<>", min_size=8, max_size=40
).map(lambda middle: f"Ab12Cd34Ef56{middle}Gh78Ij90Kl12")


def check(masked: str, written: str) -> None:
    """No sixteen characters of what was written are left."""
    for start in range(len(written) - 15):
        assert written[start : start + 16] not in masked


@given(
    key=KEYS,
    first=st.sampled_from(sorted(USUAL)),
    second=st.sampled_from(sorted(ENCODINGS)),
    scheme=st.sampled_from(["", "Bearer "]),
)
@example(
    key="Ab12Cd34Ef56::::::///Gh78Ij90Kl12", first="form", second="html, hexadecimal", scheme=""
)
def test_a_secret_is_found_in_two_encodings_at_once(
    key: str, first: str, second: str, scheme: str
) -> None:
    written = ENCODINGS[second](ENCODINGS[first](key))
    for text in (f"you sent {written}", f'{{"x":"{written}"}}', f"%22{written}%22 (key)"):
        check(mask_text(text, [scheme + key]), written)
        check(mask_bytes(text.encode(), [scheme + key]).decode(), written)


@given(key=KEYS, name=st.sampled_from(sorted(DIGESTS)), scheme=st.sampled_from(["", "Bearer "]))
def test_a_secret_is_found_in_other_alphabets(key: str, name: str, scheme: str) -> None:
    written = DIGESTS[name](key)
    check(mask_text(f"you sent {written} today", [scheme + key]), written)


@given(key=KEYS, name=st.sampled_from(sorted(USUAL)), shown=st.integers(8, 40))
@example(key="Ab12Cd34Ef56\\B000000Gh78Ij90Kl12", name="url", shown=26)
@example(key="Ab12Cd34Ef56\\b00000000Gh78Ij90Kl12", name="url", shown=26)
@example(key="Ab12Cd34Ef5600000\\B000Gh78Ij90Kl12", name="lower case", shown=33)
@example(key="Ab12Cd34Ef56%41000000Gh78Ij90Kl12", name="url", shown=26)
@example(key="Ab12Cd34Ef56&lt;00000Gh78Ij90Kl12", name="url", shown=26)
def test_of_a_secret_that_a_server_has_shortened_little_is_left(
    key: str, name: str, shown: int
) -> None:
    begins, ends = USUAL[name](key[:shown]), USUAL[name](key[-shown:])
    for text in (
        f"you sent {begins}...{ends}",
        f"you sent {begins}…",
        f"{begins}****{ends} is bad",
    ):
        masked = mask_text(text, [key])
        check(masked, begins)
        check(masked, ends)


def test_a_few_letters_at_both_ends_may_stay() -> None:
    text = "Incorrect API key provided: sk-ab...wxyz"
    assert mask_text(text, ["sk-ab12cd34ef56gh78ij90klmnopwxyz"]) == text


def test_words_that_only_together_make_a_secret_stay() -> None:
    for text in ('{"abcdefgh":"12345678"}', "abcdefgh, 12345678", "abcdefgh=12345678"):
        assert mask_text(text, ["abcdefgh12345678"]) == text
    assert mask_text("abcdefgh\n  12345678", ["abcdefgh12345678"]) == "***"


@pytest.mark.timeout(60)
@pytest.mark.parametrize("part", ["Ab12Cd34Ef56", "Gh78Ij90Kl12", "%25", "\\", "&amp;", "a", "%4"])
def test_the_work_grows_with_the_text(part: str) -> None:
    """A quadratic search takes hours for this text."""
    key = "Ab12Cd34Ef56xxxxxxxxxxGh78Ij90Kl12"
    text = part * (300_000 // len(part))
    assert len(mask_text(text, [key])) <= len(text)
