"""A provider's own secrets are taken out of what its server repeats."""

from __future__ import annotations

import base64
from urllib.parse import quote

import pytest

import penstock
from penstock import Config, InvalidRequest, PenstockError
from penstock.config.settings import ProviderConfig
from penstock.contract.errors import Problem, ProviderUnavailable
from penstock.providers.masking import mask_bytes, mask_error, mask_text
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
