"""The conformance suite on servers that somebody else wrote.

`pytest tests/independent -k "text and aimock-openai"`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from pydantic import SecretStr

from penstock import AuthenticationFailed, PenstockError
from penstock.config.settings import ProviderConfig
from tests.conformance.behaviour import Behaviour
from tests.conformance.behaviours import BEHAVIOURS
from tests.independent.rows import Row, Wrong
from tests.independent.servers import ROWS, TITLES, faults
from tests.support.wire.upstream import Upstream

FAILURES = (AssertionError, PenstockError, ValueError, LookupError, pytest.fail.Exception)
"""How a check fails; a server that is not there is none of them."""


def _cells(verdict: str) -> list[Any]:
    return [
        pytest.param(behaviour, row, id=f"{behaviour.id}[{row.name}]")
        for row in ROWS
        for behaviour in BEHAVIOURS.values()
        if row.verdict(behaviour) == verdict
    ]


async def _run(behaviour: Behaviour, row: Row[Any], request: pytest.FixtureRequest) -> None:
    check = row.check(behaviour)
    assert check is not None, f"{row.name} gives no reason for lacking {behaviour.id}"
    server = request.getfixturevalue(row.server)
    async with row.connect(server).open(behaviour) as case:
        await check(case)


# `func_only`: the first test of a process may have to install a package.
@pytest.mark.timeout(30, func_only=True)
@pytest.mark.parametrize(("behaviour", "row"), _cells("passes"))
async def test_cell(behaviour: Behaviour, row: Row[Any], request: pytest.FixtureRequest) -> None:
    await _run(behaviour, row, request)


@pytest.mark.timeout(30, func_only=True)
@pytest.mark.parametrize(("behaviour", "row"), _cells("wrong"))
async def test_cell_that_fails_for_the_servers_fault(
    behaviour: Behaviour, row: Row[Any], request: pytest.FixtureRequest
) -> None:
    """A cell that passes must leave the list of faults."""
    request.getfixturevalue(row.server)
    with pytest.raises(FAILURES):
        await _run(behaviour, row, request)


@pytest.mark.timeout(30, func_only=True)
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
async def test_another_key_is_refused(row: Row[Any], request: pytest.FixtureRequest) -> None:
    """So an answer shows that the key was sent, though no server shows it again."""
    subject = row.connect(request.getfixturevalue(row.server))

    def settings(upstream: Upstream | None) -> ProviderConfig:
        return subject.settings(upstream).model_copy(update={"auth_token": SecretStr("sk-other")})

    async with replace(subject, settings=settings).open(BEHAVIOURS["text"]) as case:
        for call in (case.ask, case.stream):
            with pytest.raises(AuthenticationFailed) as caught:
                await call()
            assert caught.value.status == 401


@pytest.mark.timeout(30, func_only=True)
@pytest.mark.parametrize(
    ("server", "wrong"),
    [
        pytest.param(server, wrong, id=f"{server}-{wrong.proof.__name__}")
        for server in TITLES
        for wrong in faults(server)
    ],
)
async def test_proof(server: str, wrong: Wrong[Any], request: pytest.FixtureRequest) -> None:
    """It fails the day the server is mended; then its fault leaves the list."""
    await wrong.proof(request.getfixturevalue(server))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_reasons_belong_to_behaviours_and_are_sentences(row: Row[Any]) -> None:
    assert (row.inexpressible.keys() | row.wrong.keys()) <= BEHAVIOURS.keys()
    assert not row.inexpressible.keys() & row.wrong.keys()
    assert not (row.inexpressible.keys() | row.wrong.keys()) & row.subject.not_applicable.keys()
    for reason in (*row.inexpressible.values(), *(each.fault for each in row.wrong.values())):
        assert reason.endswith(".")
        assert " " in reason
