"""The setting `allowedPeers` of a port: which client certificates may connect."""

from typing import Annotated

from pydantic import BeforeValidator

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


def check_allowed_peers(key: str, allowed: tuple[str, ...] | None, tls: TlsSettings) -> None:
    """ValueError when there are names that nobody would verify."""
    if allowed is not None and (not tls.enabled or tls.trust_store is None):
        raise ValueError(
            f"{key} needs {tls.prefix}.trustStore.location: names of unverified certificates mean nothing"
        )
