"""Addresses as people write them: host:port."""

from __future__ import annotations

from sordino.errors import BadInput


def split_address(address: str) -> tuple[str, int]:
    """
    >>> split_address("0.0.0.0:8443")
    ('0.0.0.0', 8443)
    """
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise BadInput(f"an address is HOST:PORT, not {address!r}.")
    return host.strip("[]"), int(port)
