"""A changed configuration takes effect without a stream being cut: on SIGHUP, or by itself.

A file that cannot be used is refused with its line, and what runs goes on as it is.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from penstock.config.settings import Config
from penstock.contract.errors import PenstockError
from penstock.server.http.listening import Certificates
from penstock.telemetry.records import ConfigReloaded

LOOK_S = 0.5
"""How often the files are looked at; a change counts when it has lasted from one look to the
next, for editors write in steps."""
FIXED = ("host", "port", "workers", "log", "grace_s", "drain_s", "tls_certificate", "tls_key")
"""The settings of `[server]` that hold until the gateway is started anew."""

logger = logging.getLogger("penstock.server")
_Stamp = tuple[int, int, int] | None


class Reloader:
    """Reads the configuration again when it is told to, or when its file has changed."""

    def __init__(
        self,
        config: Config,
        files: Sequence[Path],
        read: Callable[[], Config],
        apply: Callable[[Config], Awaitable[None]],
        certificates: Certificates | None = None,
        *,
        watches: bool = True,
        on_renewed: Callable[[], None] = lambda: None,
        on_read: Callable[[ConfigReloaded], None] = lambda _: None,
        on_change: Callable[[Config, Config, str], None] = lambda _before, _now, _file: None,
    ) -> None:
        """`apply` makes a configuration hold, or raises and leaves everything as it is.

        `files` are watched: the configuration, and what else decides about it.
        Without `watches` it reads only what it is told to. `on_renewed` hears of certificates,
        `on_read` of configurations. `on_change` records one that took effect; it may block.
        """
        self._on_read = on_read
        self._on_change = on_change
        self._watches = watches
        self._on_renewed = on_renewed
        self._config = config
        self._files = tuple(files)
        self._read = read
        self._apply = apply
        self._certificates = certificates
        self._told = asyncio.Event()

    def tell(self) -> None:
        """Read everything again, whether or not it has changed; may be called at any time."""
        self._told.set()

    async def run(self) -> None:
        """Watch the files for ever."""
        files = self._files
        pairs = [] if self._certificates is None else list(self._certificates.files)
        seen = [_stamps(files), _stamps(pairs)]
        last = list(seen)
        while True:
            told = await self._wait()
            now = [_stamps(files), _stamps(pairs)]
            if told or (now[0] != seen[0] and now[0] == last[0]):
                seen[0] = now[0]
                await self.reload()
            if told or (now[1] != seen[1] and now[1] == last[1]):
                seen[1] = now[1]
                self._renew()
            last = now

    async def _wait(self) -> bool:
        try:
            async with asyncio.timeout(LOOK_S if self._watches else None):
                await self._told.wait()
        except TimeoutError:
            return False
        self._told.clear()
        return True

    async def reload(self) -> None:
        """Read the configuration and let it hold; what goes wrong is logged."""
        if not self._files:
            logger.warning("there is no configuration file to read again")
            return
        file = self._files[0]
        try:
            # In a thread, for a long file takes longer than a stream should stand still.
            config = await asyncio.to_thread(self._read)
            if config == self._config:
                logger.info("%s: no changes", file)
                return
            await self._apply(config)
        except PenstockError as error:
            logger.error("not reloaded, the previous configuration stays: %s", error)
            self._tell(str(error))
            return
        before, self._config = self._config, config
        names = [name for name in Config.model_fields if _differs(before, config, name)]
        logger.info("reloaded %s: %s", file, ", ".join(names))
        self._tell(None)
        await asyncio.to_thread(self._on_change, before, config, str(file))
        fixed = [name for name in FIXED if _differs(before.server, config.server, name)]
        what = [f"server.{name}" for name in fixed]
        if _differs(before, config, "telemetry"):
            what.append("telemetry")
        if what:
            logger.warning("%s: takes effect after a restart of the gateway", ", ".join(what))

    def _tell(self, problem: str | None) -> None:
        self._on_read(ConfigReloaded(source=str(self._files[0]), problem=problem, at=time.time()))

    def _renew(self) -> None:
        if self._certificates is None:
            return
        try:
            self._certificates.reload()
        except PenstockError as error:
            logger.error("the certificate is not renewed, the old one stays: %s", error)
        else:
            logger.info("the certificate was read again")
            self._on_renewed()


def _differs(before: object, now: object, name: str) -> bool:
    return getattr(before, name) != getattr(now, name)


def _stamps(files: Sequence[Path]) -> list[_Stamp]:
    return [_stamp(file) for file in files]


def _stamp(file: Path) -> _Stamp:
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
