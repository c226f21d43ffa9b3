"""How a payload is shown: as text, JSON, MessagePack or hexadecimal, whichever it is. Pure."""

from __future__ import annotations

import json
from codecs import getincrementaldecoder
from collections.abc import Iterable

from waltz_tools.cli.hexdump import hex_dump
from waltz_tools.console.msgpack import MAX_DEPTH, NotMessagePackError, decode

PREVIEW_CHARACTERS = 160
MAX_SHOWN_BYTES = 64 * 1024
"""Of one payload; the rest is left out, and the page says so."""
MAX_PRETTY_CHARACTERS = 256 * 1024
"""Of JSON and MessagePack with line breaks, about: spaces in front of a line grow with its depth. The rest is
left out, and the page says so."""


def kind_of(data: bytes) -> str:
    """`empty`, `json`, `text`, `msgpack` or `binary`."""
    return _decoded(data)[0]


def _decoded(data: bytes, *, cut: bool = False) -> tuple[str, object]:
    """The kind, and the value for JSON and MessagePack, the text for text. `cut`: there was more of it, so it
    may end within a character."""
    if not data:
        return "empty", ""
    try:
        text = getincrementaldecoder("utf-8")().decode(data, final=not cut)
    except UnicodeDecodeError:
        return _msgpack(data)
    if text[:1] in '{["' or text[:1].isdigit():
        try:
            value = json.loads(text)
            if not _is_deep(value):
                return "json", value
        except (ValueError, RecursionError):
            pass
    if all(character.isprintable() or character in "\r\n\t" for character in text):
        return "text", text
    return _msgpack(data)


def _is_deep(value: object) -> bool:
    """Whether there is anything below `MAX_DEPTH`."""
    level = [value]
    for _ in range(MAX_DEPTH + 1):
        level = [child for one in level for child in _children(one)]
        if not level:
            return False
    return True


def _children(value: object) -> Iterable[object]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def _msgpack(data: bytes) -> tuple[str, object]:
    """Only maps and lists: a single number fits any bytes."""
    if 0x80 <= data[0] < 0xA0 or 0xDC <= data[0] <= 0xDF:
        try:
            return "msgpack", decode(data)
        except NotMessagePackError:
            pass
    return "binary", None


def preview(data: bytes) -> dict[str, object]:
    """Kind, size and one line of it."""
    shown = data[:MAX_SHOWN_BYTES]
    kind, value = _decoded(shown, cut=len(data) > len(shown))
    if kind == "binary":
        line = shown[: PREVIEW_CHARACTERS // 3].hex(" ")
    elif kind == "text":
        line = " ".join(str(value)[: PREVIEW_CHARACTERS * 2].split())
    elif kind == "empty":
        line = ""
    else:
        line = json.dumps(value, ensure_ascii=False)
    cut = len(line) > PREVIEW_CHARACTERS
    return {"kind": kind, "size": len(data), "line": f"{line[:PREVIEW_CHARACTERS]}…" if cut else line}


def views(data: bytes) -> dict[str, object]:
    """Everything that it can be shown as; None where it is not of that form."""
    shown = data[:MAX_SHOWN_BYTES]
    kind, value = _decoded(shown, cut=len(data) > len(shown))
    pretty, pretty_cut = _pretty(value) if kind in ("json", "msgpack") else (None, False)
    return {
        "kind": kind,
        "size": len(data),
        "cut": len(data) > len(shown),
        "text": shown.decode(errors="ignore") if kind in ("text", "json", "empty") else None,
        "json": pretty if kind == "json" else None,
        "msgpack": pretty if kind == "msgpack" else None,
        "pretty_cut": pretty_cut,
        "hex": "\n".join(hex_dump(shown)),
    }


def _pretty(value: object) -> tuple[str, bool]:
    """With line breaks, and whether it was cut."""
    pieces, size = list[str](), 0
    for piece in json.JSONEncoder(ensure_ascii=False, indent=2).iterencode(value):
        if size >= MAX_PRETTY_CHARACTERS:
            return "".join(pieces), True
        pieces.append(piece)
        size += len(piece)
    return "".join(pieces), False
