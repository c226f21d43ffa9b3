"""The setting `allowedPeers` of a port: which client certificates may connect."""

from collections.abc import Iterator
from typing import Annotated

from pydantic import BeforeValidator

from waltz_cluster.config.settings import Conflict
from waltz_protocol.aio.tls import TlsSettings


def _names(value: object) -> object:
    """A list, or a text with commas between the names."""
    names = value.split(",") if isinstance(value, str) else value
    if not isinstance(names, list | tuple):
        raise ValueError("must be a list of names")
    cleaned = tuple(str(name).strip() for name in names)
    if not cleaned or not all(cleaned):
        raise ValueError("must name at least one certificate, and no empty name")
    return cleaned


AllowedPeers = Annotated[tuple[str, ...] | None, BeforeValidator(_names)]
"""Common names or subject alternative names of client certificates; None = no such list."""


def unverified_peers(key: str, allowed: tuple[str, ...] | None, tls: TlsSettings) -> Iterator[Conflict]:
    """Names that nobody would verify."""
    if allowed is not None and (not tls.enabled or tls.trust_store is None):
        trust_store = f"{tls.prefix}.trustStore.location"
        yield Conflict(
            (key, f"{tls.prefix}.enabled", trust_store),
            f"{key} needs {trust_store}: names of unverified certificates mean nothing",
        )
