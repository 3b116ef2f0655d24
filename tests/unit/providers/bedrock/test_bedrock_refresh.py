"""Credentials that a program gives out, which botocore runs: the event loop never waits for it."""

from __future__ import annotations

import asyncio
import datetime
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from penstock.contract.errors import AuthenticationFailed
from penstock.providers.bedrock import credentials
from penstock.providers.wire.dialect import WireCall

URL = "https://bedrock-runtime.us-east-1.amazonaws.com/model/m/converse"
CALL = WireCall("/model/m/converse", b"{}")
PROGRAM = """
import socket, sys
# Its answer comes from the loop that wants to sign: were that one blocked, this would fail.
with socket.create_connection(("127.0.0.1", {port}), timeout=10) as peer:
    sys.stdout.write(peer.makefile().read())
"""
HOUR, MINUTE = datetime.timedelta(hours=1), datetime.timedelta(minutes=1)


class Vault:
    """Gives out numbered credentials that live for so long."""

    def __init__(self, lifetime: datetime.timedelta) -> None:
        self.asked = 0
        self.lifetime = lifetime

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.asked += 1
        end = datetime.datetime.now(datetime.UTC) + self.lifetime
        given = {
            "Version": 1,
            "AccessKeyId": f"AK{self.asked}",
            "SecretAccessKey": "s",
            "SessionToken": "t",
            "Expiration": end.isoformat(),
        }
        writer.write(msgspec.json.encode(given))
        await writer.drain()
        writer.close()


Sign = Callable[[], Awaitable[str]]


@pytest.fixture
def profile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    return tmp_path


@asynccontextmanager
async def signing_with(vault: Vault, profile: Path) -> AsyncGenerator[Sign]:
    """Gives a function that signs and tells the access key that it did it with."""
    async with await asyncio.start_server(vault.answer, "127.0.0.1", 0) as server:
        program = profile / "program.py"
        program.write_text(PROGRAM.format(port=server.sockets[0].getsockname()[1]))
        (profile / "config").write_text(
            f'[profile work]\ncredential_process = "{sys.executable}" "{program}"\n'
        )
        signer = credentials.signer(None, {"profile": "work"})

        async def sign() -> str:
            headers = await signer(CALL, URL, {})
            return headers["authorization"].partition("Credential=")[2].partition("/")[0]

        yield sign


async def test_credentials_are_found_once_for_all_calls(profile: Path) -> None:
    vault = Vault(HOUR)
    async with signing_with(vault, profile) as sign:
        assert await asyncio.gather(sign(), sign(), sign()) == ["AK1"] * 3
        assert await sign() == "AK1"
    assert vault.asked == 1


async def test_credentials_that_expire_are_refreshed_while_the_loop_goes_on(profile: Path) -> None:
    vault = Vault(MINUTE)
    async with signing_with(vault, profile) as sign:
        first = await sign()
        vault.lifetime = HOUR
        second = await sign()
        assert await sign() == second != first
    assert vault.asked >= 2


async def test_fresh_credentials_sign_without_giving_way(profile: Path) -> None:
    async with signing_with(Vault(HOUR), profile) as sign:
        await sign()
        signing = sign()
        with pytest.raises(StopIteration) as ended:
            signing.__await__().send(None)
    assert ended.value.value == "AK1"


async def test_a_program_that_fails_is_named_by_its_kind_only(profile: Path) -> None:
    (profile / "config").write_text(
        f'[profile work]\ncredential_process = "{sys.executable}" -c "exit(\'sk-printed\')"\n'
    )
    with pytest.raises(AuthenticationFailed, match="CredentialRetrievalError") as caught:
        await credentials.signer(None, {"profile": "work"})(CALL, URL, {})
    assert "sk-printed" not in str(caught.value)
