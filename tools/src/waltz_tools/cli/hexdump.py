"""Bytes for the eye: offset, hexadecimal, printable characters."""

from __future__ import annotations

from collections.abc import Iterator

PER_LINE = 16


def hex_dump(data: bytes) -> Iterator[str]:
    """Lines of 16 bytes each; none for no bytes."""
    for offset in range(0, len(data), PER_LINE):
        piece = data[offset : offset + PER_LINE]
        shown = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in piece)
        yield f"{offset:08x}  {piece.hex(' '):<{3 * PER_LINE - 1}}  {shown}"
