"""Whose transaction is it: names for the 32-bit headers of an application. Pure.

A partition may be shared: whatever any program appends to it reaches everybody who follows it. The header
travels with every transaction and is known before the payload is fetched, so it is where a program says whose
a transaction is (docs/applications.md).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from waltz_client.errors import UsageError
from waltz_protocol.checksum import crc32

KINDS = 256
"""How many kinds of transactions a namespace has."""
RESERVED = {0x000000: "headers that nobody has named (0 to 255)", 0x57434C: "the claims of the Spark sink"}
"""Namespaces that no application gets."""


@dataclass(frozen=True, slots=True)
class HeaderNamespace:
    """The headers of one application: `LEDGER = HeaderNamespace("ledger")`, `LEDGER.header(1)`, and
    `LEDGER.owns` wherever a `where` is asked for.

    The upper 24 bits of a header are those of the CRC-32 of the name in UTF-8, the lower 8 bits the kind of
    the transaction, 0 to 255. This never changes: the headers are in the log. UsageError for an empty name
    and for the few whose namespace is reserved.
    """

    name: str
    prefix: int = field(init=False)
    """The upper 24 bits, 0 to 2**24 - 1."""

    def __post_init__(self) -> None:
        if not self.name:
            raise UsageError("a header namespace needs a name, such as that of the application")
        prefix = crc32(self.name.encode()) >> 8
        if prefix in RESERVED:
            raise UsageError(
                f"the name {self.name!r} gives the namespace of {RESERVED[prefix]}: choose another name"
            )
        object.__setattr__(self, "prefix", prefix)

    def header(self, kind: int) -> int:
        """The header of the transactions of this kind (0 to 255), as the signed 32-bit number that is
        appended. UsageError."""
        if not 0 <= kind < KINDS:
            raise UsageError(f"the kind of a transaction is a number from 0 to {KINDS - 1}, not {kind!r}")
        header = self.prefix << 8 | kind
        return header - ((header & 0x8000_0000) << 1)

    def owns(self, header: int) -> bool:
        """Whether a transaction with this header is one of this application's."""
        return (header >> 8) & 0xFF_FFFF == self.prefix

    def kind(self, header: int) -> int | None:
        """The kind, None for a header of anybody else's."""
        return header & 0xFF if self.owns(header) else None
