"""Tells systemd, or whoever else started the gateway and listens, how far it is."""

from __future__ import annotations

import contextlib
import os
import socket


def notify(state: str) -> None:
    """Say `READY=1`, `STOPPING=1` and the like; nothing happens where nobody asked to be told."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    if address.startswith("@"):
        # An address in Linux's abstract namespace, which has no file.
        address = f"\0{address[1:]}"
    with (
        contextlib.suppress(OSError),
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener,
    ):
        listener.sendto(state.encode(), address)
