"""The servers, one of each for a whole test process, started when a test first asks."""

from collections.abc import Generator

import pytest

from tests.conformance.subjects import KEY
from tests.independent.aimock import Aimock, aimock_service
from tests.independent.llama import Llama, llama_service


@pytest.fixture(scope="session")
def aimock() -> Generator[Aimock]:
    """The npm package; it is installed if this is the first run."""
    with aimock_service(KEY) as server:
        yield server


@pytest.fixture(scope="session")
def llama() -> Generator[Llama]:
    """The bundled model behind llama.cpp's own HTTP server."""
    with llama_service(KEY) as server:
        yield server
