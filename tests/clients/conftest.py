"""The programs of the clients, and a gateway, one of each for a whole test process."""

import sys
from collections.abc import Generator

import pytest

from penstock.providers.embedded import install

pytest.register_assert_rewrite("tests.clients.scenarios")

from tests.clients.running import Programs, install_packages  # noqa: E402
from tests.clients.table import CLAUDE  # noqa: E402
from tests.docs.blocks import ROOT  # noqa: E402
from tests.support.services import HOST, in_ci, running, scratch_folder  # noqa: E402

CONFIG = f"""
[providers.embedded]

[models.default]
targets = ["embedded/smollm2"]

[models.{CLAUDE}]
targets = ["embedded/smollm2"]
"""


@pytest.fixture(scope="session")
def installed() -> None:
    """What the clients are made of; before a test hides the proxies that pip and npm may need."""
    install_packages()


@pytest.fixture(scope="session")
def programs(installed: None) -> Generator[Programs]:
    """Each is started when a test first asks it."""
    programs = Programs()
    try:
        yield programs
    finally:
        programs.close()


@pytest.fixture(scope="session")
def url() -> Generator[str]:
    """`penstock serve`, with an alias for clients that want a name they know."""
    if lacking := install.missing():
        reason = f"{lacking} is not installed: run `penstock embedded install`"
        (pytest.fail if in_ci() else pytest.skip)(reason)

    with scratch_folder("clients") as folder:

        def ready(port: int) -> bool:
            # What it says itself: another run's server may have taken the port in the meantime.
            return f"http://{HOST}:{port}" in (folder / "log.txt").read_text()

        (folder / "penstock.toml").write_text(CONFIG)

        def command(port: int) -> list[str]:
            python = ["env", f"PYTHONPATH={ROOT / 'src'}", sys.executable]
            options = ["--config", "penstock.toml", "--port", str(port)]
            return [*python, "-m", "penstock", "serve", *options]

        with running(command, ready, folder=folder) as port:
            yield f"http://{HOST}:{port}"
