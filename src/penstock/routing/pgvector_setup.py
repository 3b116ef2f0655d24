"""Connecting to PostgreSQL with pgvector, making the table, and what to do when that fails."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeAlias

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


class NoTableError(Exception):
    """Why there is no table to work with, and what to do about it."""


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
    import asyncpg

    connection = None
    try:
        async with asyncio.timeout(within_s):
            connection = await asyncpg.connect(url, server_settings=_SETTINGS)
            await _prepare(connection, dimensions)
    except BaseException as error:
        if connection is not None:
            connection.terminate()
        elif isinstance(error, asyncpg.InterfaceError | ValueError):
            # What it says may hold a piece of the password.
            raise NoTableError(
                "it is no address of PostgreSQL: write postgresql://user:password@host:5432/name, "
                "with / @ : ? # % in a password as %2F %40 %3A %3F %23 %25"
            ) from None
        if isinstance(error, failures()):
            raise NoTableError(described(error)) from error
        raise
    return connection


def described(error: BaseException) -> str:
    """What went wrong, and what to do about it."""
    import asyncpg

    if isinstance(error, NoTableError):
        return str(error)

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
    return f"{said}: {next(fitting, 'see what its log says')}"


async def _prepare(connection: Connection, dimensions: int) -> None:
    from pgvector.asyncpg import register_vector

    async with connection.transaction():
        await connection.execute("SELECT pg_advisory_xact_lock($1)", _LOCK)
        schema = await _extension(connection)
        # The types and operators may be in a schema that is not looked at.
        await connection.execute(
            "SELECT set_config('search_path', "
            "concat_ws(', ', nullif(current_setting('search_path'), ''), quote_ident($1)), false)",
            schema,
        )
        await _make_table(connection, dimensions)
    await register_vector(connection, schema=schema)
    await connection.execute(f"SET hnsw.ef_search = {_CANDIDATES}")
    # Rows of other memories are in the same graph: go on until there are enough of this one.
    await connection.execute("SET hnsw.iterative_scan = relaxed_order")


async def _extension(connection: Connection) -> str:
    """The schema that it is in."""
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
            f"it has pgvector {version}: install 0.8 or newer there, and run "
            "`ALTER EXTENSION vector UPDATE`"
        )
    schema: str = found["nspname"]
    return schema


async def _make_table(connection: Connection, dimensions: int) -> None:
    table = table_of(dimensions)
    # Asked first: who may not create is refused also where nothing is to be created.
    if await connection.fetchval("SELECT to_regclass($1)::text", table) is not None:
        return
    await connection.execute(
        f"CREATE TABLE {table} (memory text, digest bytea, "
        f"vector halfvec({dimensions}) NOT NULL, PRIMARY KEY (memory, digest))"
    )
    await connection.execute(
        f"CREATE INDEX {table}_nearest ON {table} "
        f"USING hnsw (vector halfvec_cosine_ops) WITH (m = {_CONNECTED})"
    )
