"""The socket that a gateway listens on, and what protects the bytes on it."""

from __future__ import annotations

import contextlib
import errno
import logging
import socket
import ssl
from pathlib import Path

from penstock.config.server import ServerConfig
from penstock.contract.errors import ConfigurationError

try:
    import resource
except ImportError:  # there is none on Windows, which has no such limit
    resource = None

BACKLOG = 2048
FEW_FILES = 4096
"""Below this a gateway may run out of descriptors: a request in progress has two, its own
connection and that to a provider."""
_log = logging.getLogger("penstock.server")


def allow_open_files() -> None:
    """Raise the limit of open files of this process as far as it may, and warn where that is low.

    Many systems start programs with 1,024 and let them have more; each connection is one.
    """
    if resource is None:
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        # A system without a limit in name has one in fact.
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            soft = hard
    if soft != resource.RLIM_INFINITY and soft < FEW_FILES:
        _log.warning(
            "this process may open %d files, which is enough for some %d requests at once; allow "
            "more, with `ulimit -n` or LimitNOFILE= of its service",
            soft,
            soft // 2,
        )


def listen(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 takes a free one. Raises ConfigurationError with the remedy."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
    except OSError as error:
        raise ConfigurationError(f"cannot listen on {host}: {error.strerror}") from error
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise ConfigurationError(_why_not(host, port, error)) from error
    return listener


def _why_not(host: str, port: int, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return (
            f"port {port} on {host} is in use, perhaps by a Penstock that still runs; "
            f"stop that, or take another port: penstock serve --port {port + 1}"
        )
    if error.errno == errno.EACCES:
        return f"port {port} needs privileges; take one above 1023: penstock serve --port 8400"
    return f"cannot listen on {host} port {port}: {error.strerror}"


def url_of(listener: socket.socket, *, tls: bool = False) -> str:
    """The address of this listener, as clients write it."""
    host, port = listener.getsockname()[:2]
    scheme = "https" if tls else "http"
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


class Certificates:
    """The certificate of a gateway, which may be replaced while it runs."""

    def __init__(self, certificate: Path, key: Path | None = None) -> None:
        """Read the files; raises ConfigurationError naming the one that is of no use."""
        self.files = (certificate,) if key is None else (certificate, key)
        _load(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), self.files)
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        """For the server; connections that are there keep what they have."""
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        _load(self.context, self.files)

    @classmethod
    def of(cls, server: ServerConfig) -> Certificates | None:
        """Those of this configuration; None: it serves without."""
        if server.tls_certificate is None:
            return None
        key = server.tls_key
        return cls(
            Path(server.tls_certificate).expanduser(),
            None if key is None else Path(key).expanduser(),
        )

    def reload(self) -> None:
        """Read the files again; raises ConfigurationError, and then the old ones stay."""
        # A context that has failed to load half of a pair would serve the other half.
        _load(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), self.files)
        _load(self.context, self.files)


def _load(context: ssl.SSLContext, files: tuple[Path, ...]) -> None:
    names = ("server.tls_certificate", "server.tls_key")
    for name, path in zip(names, files, strict=False):
        try:
            path.read_bytes()
        except OSError as error:
            raise ConfigurationError(
                f"{name}: {path} cannot be read ({error.strerror}): give the path of a PEM file"
            ) from error
    try:
        # A password would be asked for on the terminal, where nobody may sit.
        context.load_cert_chain(*files, password=lambda: "")
    except (ssl.SSLError, ValueError) as error:
        reason = getattr(error, "reason", None) or str(error) or type(error).__name__
        raise ConfigurationError(
            f"{names[0]}: {' and '.join(map(str, files))} cannot be used ({reason}): give a PEM "
            "file with the certificate and those that lead to its authority, and the key that "
            "belongs to it, without a password"
        ) from error
