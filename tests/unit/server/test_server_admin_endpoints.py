"""How calls of the admin API are read: parameters, names in paths, bodies, methods."""

from typing import Any

import httpx
import pytest

from tests.support.keyed import ADMIN, bearer
from tests.unit.server.admin_support import BASE, Admin, administered


async def raw(admin: Admin, head: str, body: bytes = b"") -> tuple[int, bytes]:
    """The status and the rest of what comes back for this request line."""
    length = f"content-length: {len(body)}\r\n" if body else ""
    data = await admin.gateway.raw(
        f"{head} HTTP/1.1\r\nhost: localhost\r\nx-api-key: {ADMIN}\r\n"
        f"{length}connection: close\r\n\r\n".encode("latin-1")
        + body
    )
    return int(data.split(b" ", 2)[1]), data


@pytest.mark.parametrize(
    ("query", "param", "said"),
    [
        ("limit=0", "limit", '"0" does not fit; give a whole number from 1 to 1000'),
        ("limit=1001", "limit", '"1001" does not fit; give a whole number from 1 to 1000'),
        ("limit=ten", "limit", '"ten" does not fit; give a whole number'),
        ("limit=1.5", "limit", '"1.5" does not fit'),
        ("limit=", "limit", '"" does not fit'),
        ("limit", "limit", '"" does not fit'),
        ("limit=%201", "limit", '" 1" does not fit'),
        ("limit=null", "limit", '"null" does not fit'),
        ("limit=1e400", "limit", '"1e400" does not fit'),
        ("limit=5&limit=5", "limit", "it is given twice; give it once"),
        ("outcome=good", "outcome", '"good" does not fit; give cancelled or failed or ok'),
        ("outcome=%22ok%22", "outcome", "does not fit"),
        ("key=", "key", '"" does not fit; give a text of at most 256 characters'),
        ("key=" + "x" * 257, "key", "... does not fit; give a text of at most 256 characters"),
        ("until=5", "until", "there is no such parameter; there are: state, outcome, key,"),
        ("=5", "", "there is no such parameter"),
        ("key=%ff", "query", "it is not UTF-8"),
        ("&".join(f"a{number}=1" for number in range(60)), "query", "more than 50 parameters"),
    ],
)
async def test_a_parameter_that_does_not_fit(query: str, param: str, said: str) -> None:
    async with administered() as admin:
        error = await admin.error("GET", f"requests?{query}", 400)
        assert error["param"] == (param or None)
        assert said in error["message"]


async def test_every_parameter_at_fault_is_named() -> None:
    async with administered() as admin:
        error = await admin.error("GET", "requests?limit=0&outcome=x&what=1", 400)
        for name in ("limit: ", "outcome: ", "what: "):
            assert name in error["message"]


@pytest.mark.parametrize("path", ["usage?by=key", "providers?check=true", "requests?limit=5.0"])
async def test_parameters_that_fit(path: str) -> None:
    async with administered() as admin:
        assert (await admin.call("GET", path)).status_code == 200


@pytest.mark.parametrize(
    ("path", "query"),
    [("config", "x=1"), ("keys", "limit=5"), ("budgets/total", "a"), ("openapi.json", "v=3")],
)
async def test_what_takes_no_parameters_refuses_them(path: str, query: str) -> None:
    async with administered() as admin:
        error = await admin.error("GET", f"{path}?{query}", 400)
        assert "there are none" in error["message"]


@pytest.mark.parametrize(
    ("path", "status", "said"),
    [
        ("budgets/%ff", 400, "it is not UTF-8"),
        ("budgets/%C3%A4", 404, "there is no budget 'ä'"),
        ("budgets/a%2Fb", 404, "there is no budget 'a/b'"),
        ("budgets/%00", 404, "there is no budget '\\\\x00'"),
        ("budgets/%2E%2E", 404, "there is no budget '..'"),
        ("budgets/", 400, "name: "),
        ("budgets//reset", 405, "takes POST, not GET"),
        ("budgets%2Ftotal", 404, "there is nothing at"),
        ("budgets/a/b/c", 404, "there is nothing at"),
        ("Budgets", 404, "there is nothing at"),
        ("", 404, "there is nothing at"),
        ("keys/", 405, "takes DELETE, PATCH, not GET"),
    ],
)
async def test_names_in_paths_are_read_once_and_as_names(path: str, status: int, said: str) -> None:
    async with administered() as admin:
        found, data = await raw(admin, f"GET {BASE}/{path}")
        assert (found, said.encode() in data) == (status, True), data


@pytest.mark.parametrize(
    ("method", "path", "allow"),
    [
        ("PUT", "usage", "GET, HEAD, POST"),
        ("DELETE", "keys", "GET, HEAD, POST"),
        ("PATCH", "budgets/total", "DELETE, GET, HEAD, PUT"),
        ("OPTIONS", "targets/down", "POST"),
        ("GET", "targets/down", "POST"),
        ("TRACE", "events", "GET, HEAD"),
    ],
)
async def test_another_method_is_told_which_there_are(method: str, path: str, allow: str) -> None:
    async with administered() as admin:
        answer = await admin.call(method, path)
        assert (answer.status_code, answer.headers["allow"]) == (405, allow)
        assert answer.json()["error"]["code"] == "method_not_allowed"


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        (b"", 400, "body: it is empty; send a JSON object"),
        (b"{", 400, "body: it is not JSON"),
        (b"\xff", 400, "body: it is not JSON"),
        (b"[" * 100_000, 400, "body: it is not JSON"),
        (b'{"limit_usd": NaN}', 400, "body: it is not JSON"),
        (b'{"limit_usd": 1e400}', 400, "body: it is not JSON"),
        (b'{"limit_usd": 1, "key": "\\ud800"}', 400, "body: it is not JSON"),
        (b"null", 400, "body: null is not an object"),
        (b'{"limit_usd": true}', 400, "limit_usd: true does not fit: expected `float`, got `bool`"),
        (b'{"limit_usd": 1e30}', 400, "limit_usd: "),
        (b'{"limit_usd": 1, "tags": [1]}', 400, "tags: [1] does not fit"),
        (b'{"limit_usd": 5.0}', 200, '"limit_usd":5.0'),
    ],
)
async def test_bodies(body: bytes, status: int, said: str) -> None:
    async with administered() as admin:
        answer = await admin.call("PUT", "budgets/total", content=body)
        assert answer.status_code == status, answer.text
        assert said in answer.text


async def test_a_body_that_is_too_large_is_not_read() -> None:
    async with administered() as admin:
        limit = admin.engine.config.limits.max_request_bytes
        answer = await admin.call("PUT", "budgets/total", content=b" " * (limit + 1))
        assert answer.status_code == 413


async def test_a_head_is_a_get_without_a_body() -> None:
    async with administered() as admin:
        answers: list[httpx.Response] = [
            await admin.call(method, "keys") for method in ("GET", "HEAD")
        ]
        assert [answer.status_code for answer in answers] == [200, 200]
        assert answers[0].headers["content-length"] == answers[1].headers["content-length"]
        assert answers[1].content == b""


async def test_every_answer_has_the_id_of_its_call() -> None:
    async with administered() as admin:
        calls: list[tuple[str, str, dict[str, Any]]] = [
            ("GET", "keys", {}),
            ("GET", "budgets/x", {}),
            ("PUT", "budgets/x", {"json": {"limit_usd": 1}}),
            ("DELETE", "budgets/x", {}),
        ]
        answers = [await admin.call(method, path, **options) for method, path, options in calls]
        assert [answer.status_code for answer in answers] == [200, 404, 200, 204]
        assert len({answer.headers["x-request-id"] for answer in answers}) == 4


async def test_admin_paths_in_other_spellings_are_guarded_too() -> None:
    async with administered() as admin:
        for path in ("/%61dmin/v1/keys", "/admin/v1/%6beys"):
            url = f"{admin.gateway.url}{path}"
            answer = await admin.gateway.client.get(url, headers=bearer(admin.texts["ci"]))
            assert answer.status_code == 403
            answer = await admin.gateway.client.get(url, headers=bearer(ADMIN))
            assert answer.status_code == 200
