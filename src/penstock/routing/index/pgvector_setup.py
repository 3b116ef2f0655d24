"""Connecting to PostgreSQL with pgvector, making the table, and what to do when that fails."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, TypeVar

from penstock.contract.errors import ConfigurationError

if TYPE_CHECKING:
    import asyncpg

    Connection: TypeAlias = asyncpg.Connection[asyncpg.Record]

LEAST_VERSION = (0, 8)
"""Of pgvector; the first that goes on until enough rows of one memory are found."""
_CONNECTED = 16
_CANDIDATES = 256
_LOCK = 0x70656E73746F636B
"""Whoever makes the table holds this advisory lock, for two at once would fail."""
_SETTINGS = {
    "application_name": "penstock",
    # A plan for memories of average size would suit neither the large nor the small ones.
    "plan_cache_mode": "force_custom_plan",
}


_T = TypeVar("_T")


class NoTableError(Exception):
    """Why there is no table to work with, and what to do about it."""

    def __init__(self, says: str, do: str) -> None:
        """Keep the two apart, for those who show them apart."""
        super().__init__(f"{says}: {do}")
        self.says = says
        self.do = do


class Extension(NamedTuple):
    """The extension that a database has."""

    version: str
    schema: str


class Looked(NamedTuple):
    """What a database has, or would have once it is used."""

    database: str
    server: str
    """The version of PostgreSQL."""
    vector: str
    """The version of pgvector."""
    ready: bool
    """Whether nothing is left to be made."""


def need_packages() -> None:
    """Raise ConfigurationError when they are not installed."""
    try:
        import pgvector.asyncpg  # noqa: F401  # pyright: ignore[reportUnusedImport]
    except ImportError as error:
        raise ConfigurationError(
            "this index takes packages that are not installed: "
            "pip install 'penstock[routing-pgvector]'"
        ) from error


def failures() -> tuple[type[Exception], ...]:
    """What a connection may raise."""
    import asyncpg

    return (
        asyncpg.PostgresError,
        asyncpg.InterfaceError,
        asyncpg.InternalClientError,  # the server has said goodbye between two queries
        OSError,
    )


def table_of(dimensions: int) -> str:
    """The name of the table for vectors of this length."""
    return f"penstock_routing_{dimensions}"


async def open_connection(url: str, dimensions: int, within_s: float) -> Connection:
    """A connection that can be used; raises NoTableError, which does not repeat the address."""
    connection, _ = await _connected(url, within_s, partial(_prepare, dimensions=dimensions))
    return connection


async def look(url: str, dimensions: int, within_s: float) -> Looked:
    """What would be worked with, by making what is missing and taking it back again.

    Raises NoTableError, as `open_connection` would.
    """
    connection, looked = await _connected(url, within_s, partial(_look, dimensions=dimensions))
    connection.terminate()
    return looked


async def _connected(
    url: str, within_s: float, work: Callable[[Connection], Awaitable[_T]]
) -> tuple[Connection, _T]:
    import asyncpg

    connection = None
    try:
        async with asyncio.timeout(within_s):
            connection = await asyncpg.connect(url, server_settings=_SETTINGS)
            done = await work(connection)
    except BaseException as error:
        if connection is not None:
            connection.terminate()
        elif isinstance(error, asyncpg.InterfaceError | ValueError):
            # What it says may hold a piece of the password.
            raise NoTableError(
                "it is not an address of PostgreSQL",
                "write postgresql://user:password@host:5432/name, "
                "with / @ : ? # % in a password as %2F %40 %3A %3F %23 %25",
            ) from None
        if isinstance(error, failures()):
            raise _explained(error) from error
        raise
    return connection, done


def described(error: BaseException) -> str:
    """What went wrong, and what to do about it."""
    return str(error if isinstance(error, NoTableError) else _explained(error))


def _explained(error: BaseException) -> NoTableError:
    import asyncpg

    remedies: tuple[tuple[type[BaseException], str], ...] = (
        (asyncpg.InvalidAuthorizationSpecificationError, "correct the user or the password"),
        (asyncpg.InvalidCatalogNameError, "create the database, or name another"),
        (asyncpg.FeatureNotSupportedError, "install pgvector 0.8 or newer on that machine"),
        (asyncpg.UndefinedFileError, "install pgvector 0.8 or newer on that machine"),
        (
            asyncpg.InsufficientPrivilegeError,
            "have the owner of the database run `CREATE EXTENSION vector` there, and "
            "`GRANT CREATE ON SCHEMA public TO` this user",
        ),
        (TimeoutError, "see whether PostgreSQL runs there, and how busy it is"),
        (OSError, "start PostgreSQL there, or correct the address"),
    )
    fitting = (remedy for kind, remedy in remedies if isinstance(error, kind))
    said = f"{type(error).__name__}: {error}".removesuffix(": ")
    return NoTableError(said, next(fitting, "see what its log says"))


async def _prepare(connection: Connection, dimensions: int) -> None:
    from pgvector.asyncpg import register_vector

    async with connection.transaction():
        extension, _ = await _make(connection, dimensions)
    await register_vector(connection, schema=extension.schema)
    await connection.execute(f"SET hnsw.ef_search = {_CANDIDATES}")
    # Rows of other memories are in the same graph: go on until there are enough of this one.
    await connection.execute("SET hnsw.iterative_scan = relaxed_order")


async def _look(connection: Connection, dimensions: int) -> Looked:
    query = "SELECT current_database()::text, current_setting('server_version')"
    database, server = await connection.fetchrow(query) or ("", "")
    trial = connection.transaction()
    await trial.start()
    extension, made = await _make(connection, dimensions)
    # When something fails before, the connection is ended, and the server does the same.
    await trial.rollback()
    return Looked(database, server, extension.version, not made)


async def _make(connection: Connection, dimensions: int) -> tuple[Extension, bool]:
    """Have all that is needed, in a transaction; whether something was missing."""
    await connection.execute("SELECT pg_advisory_xact_lock($1)", _LOCK)
    extension = await _extension(connection)
    # The types and operators may be in a schema that is not looked at.
    await connection.execute(
        "SELECT set_config('search_path', "
        "concat_ws(', ', nullif(current_setting('search_path'), ''), quote_ident($1)), false)",
        extension.schema,
    )
    return extension, await _make_table(connection, dimensions)


async def _extension(connection: Connection) -> Extension:
    query = (
        "SELECT extversion, nspname::text FROM pg_extension "
        "JOIN pg_namespace ON pg_namespace.oid = extnamespace WHERE extname = 'vector'"
    )
    found = await connection.fetchrow(query)
    if found is None:
        await connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
        return await _extension(connection)
    version: str = found["extversion"]
    if tuple(int(each) for each in version.split(".")[:2]) < LEAST_VERSION:
        raise NoTableError(
            f"it has pgvector {version}",
            "install 0.8 or newer there, and run `ALTER EXTENSION vector UPDATE`",
        )
    return Extension(version, found["nspname"])


async def _make_table(connection: Connection, dimensions: int) -> bool:
    """Make it, unless it is there; whether it was not."""
    table = table_of(dimensions)
    # Asked first: who may not create is refused also where nothing is to be created.
    if await connection.fetchval("SELECT to_regclass($1)::text", table) is not None:
        return False
    await connection.execute(
        f"CREATE TABLE {table} (memory text, digest bytea, "
        f"vector halfvec({dimensions}) NOT NULL, PRIMARY KEY (memory, digest))"
    )
    await connection.execute(
        f"CREATE INDEX {table}_nearest ON {table} "
        f"USING hnsw (vector halfvec_cosine_ops) WITH (m = {_CONNECTED})"
    )
    return True
