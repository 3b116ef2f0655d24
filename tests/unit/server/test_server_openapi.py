"""The OpenAPI documents are true: schemathesis sends what they allow, and what they do not.

It runs as a program of its own, as anybody could run it, against a gateway on loopback.
"""

import asyncio
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from penstock.keys.keyring import Keyring
from penstock.mcp.host.queue import ApprovalQueue
from penstock.server.admin.api import admin_document
from penstock.server.doors.anthropic import endpoint as anthropic_api
from penstock.server.doors.openai_chat import endpoint as openai_api
from penstock.server.doors.openai_responses import endpoint as responses_api
from penstock.server.doors.sampling import endpoint as sampling_api
from penstock.server.doors.sampling.approvals import Approvals
from penstock.server.openapi import public
from penstock.server.openapi.document import Content, Operation, document
from penstock.server.openapi.public import doors_document
from penstock.server.openapi.shapes import Health, ModelCard
from penstock.server.ops import home, probes
from penstock.server.own import estimates, feedback, usage
from penstock.server.process.peers import Siblings
from penstock.telemetry.exporters.prometheus import PrometheusMetrics
from penstock.telemetry.recent import RecentRequests
from tests.support import schemathesis_hooks
from tests.support.keyed import ADMIN
from tests.support.unmeasured import unmeasured_environment
from tests.unit.server.admin_support import administered

EVERY_CHECK = "all"
REJECTS_MORE = "positive_data_acceptance"
"""The doors speak for languages that no schema has words for: who may follow whom, and so on."""

LOOK_CLOSER = "^(estimate|record_usage)$"
"""Operations that refuse what no schema can: a part that is more than its whole, and so on."""


async def verdict(url: str, key: str, folder: Path, *options: str) -> tuple[int, str]:
    """How schemathesis ends, and what it says."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "schemathesis.cli", "run", url),
        *("--header", f"Authorization: Bearer {key}"),
        # The same examples in every run, and none from runs before.
        "--generation-deterministic",
        *("--request-timeout", "20", "--no-color", "--checks", EVERY_CHECK),
        *options,
        cwd=folder,
        env={**unmeasured_environment(), "SCHEMATHESIS_HOOKS": schemathesis_hooks.__file__},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said, _ = await process.communicate()
    return process.returncode or 0, said.decode()


@pytest.mark.timeout(240)
async def test_the_document_of_the_admin_api_is_true(tmp_path: Path) -> None:
    async with administered(ci={"tags": {"team": "x"}, "budget": {"limit_usd": 5.0}}) as admin:
        for stream in (False, True):
            assert (await admin.chat(stream=stream)).status_code == 200
        code, said = await verdict(
            f"{admin.gateway.url}/admin/v1/openapi.json",
            ADMIN,
            tmp_path,
            # It never ends; its own tests read it.
            *("--exclude-path", "/admin/v1/events"),
            *("--exclude-operation-id-regex", LOOK_CLOSER),
            *("--phases", "coverage,fuzzing,stateful", "--max-examples", "5"),
        )
        assert code == 0, said
        assert "27 selected / 30 total" in said
        code, said = await verdict(
            f"{admin.gateway.url}/admin/v1/openapi.json",
            ADMIN,
            tmp_path,
            *("--include-operation-id-regex", LOOK_CLOSER, "--exclude-checks", REJECTS_MORE),
            *("--phases", "coverage,fuzzing", "--max-examples", "5"),
        )
        assert code == 0, said
        assert "2 selected / 30 total" in said


@pytest.mark.timeout(240)
async def test_the_document_of_the_doors_is_true(tmp_path: Path) -> None:
    async with administered() as admin:
        code, said = await verdict(
            f"{admin.gateway.url}/openapi.json",
            admin.texts["ci"],
            tmp_path,
            *("--exclude-checks", REJECTS_MORE),
            *("--phases", "examples,coverage", "--max-examples", "5"),
        )
        assert code == 0, said
        # What the examples ask for must be answered, and as the document says.
        code, said = await verdict(
            f"{admin.gateway.url}/openapi.json", admin.texts["ci"], tmp_path, "--phases", "examples"
        )
        assert code == 0, said


def _read(made: dict[str, Any]) -> Any:
    return msgspec.json.decode(msgspec.json.encode(made))


def _operations(made: dict[str, Any]) -> set[tuple[str, str]]:
    return {(method.upper(), path) for path, methods in made["paths"].items() for method in methods}


def test_every_public_route_is_in_the_document_and_no_other() -> None:
    routes = {
        **home.ROUTES,
        **openai_api.ROUTES,
        **responses_api.ROUTES,
        **anthropic_api.ROUTES,
        **sampling_api.routes(Siblings(), Approvals(ApprovalQueue())),
        **feedback.ROUTES,
        **estimates.ROUTES,
        **usage.routes(RecentRequests(), Siblings()),
        **public.ROUTES,
        **probes.routes(PrometheusMetrics(), Siblings(), Keyring()),
    }
    said = {
        (method, path if "{" not in path else path.partition("{")[0] + "*")
        for method, path in _operations(doors_document())
    }
    assert said == set(routes)


def test_the_admin_document_names_every_type_once() -> None:
    made = admin_document()
    names = set(made["components"]["schemas"])
    text = str(made)
    assert {name for name in names if f"#/components/schemas/{name}'" not in text} == set()
    ids = [each["operationId"] for path in made["paths"].values() for each in path.values()]
    assert len(ids) == len(set(ids)) == 30


def test_two_types_of_one_name_are_told_apart_or_refused() -> None:
    def operation(kind: type, group: str) -> Operation:
        answers = [Content(200, "ok", {"application/json": kind})]
        return Operation("GET", f"/{group}", group, "", "key", answers, (), Health, group=group)

    other = type("ModelCard", (Health,), {"__doc__": "Another."})
    made = document("t", "d", [operation(ModelCard, "A"), operation(other, "B")])
    assert {"AModelCard", "BModelCard"} <= set(made["components"]["schemas"])
    with pytest.raises(ValueError, match="two types are called 'AModelCard'"):
        document("t", "d", [operation(ModelCard, "A"), operation(other, "A")])


async def test_the_documents_are_served_to_those_who_may_read_them() -> None:
    async with administered() as admin:
        assert await admin.get("openapi.json") == _read(admin_document())
        client = admin.gateway.client
        assert (await client.get("/openapi.json")).status_code == 401
        answer = await client.get("/openapi.json", headers={"x-api-key": admin.texts["ci"]})
        assert answer.json() == _read(doors_document())
