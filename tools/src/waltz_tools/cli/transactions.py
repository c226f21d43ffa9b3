"""Transactions as text: JSON lines out and in, filters on the header, locks on the command line."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import BinaryIO

from waltz_client import FeedTransaction, LockId
from waltz_tools.errors import UsageError

_HEADER_BITS = 0xFFFFFFFF


@dataclass(frozen=True, slots=True)
class HeaderFilter:
    """Headers that agree with `value` in the bits of `mask`. A header is a signed number of 32 bits."""

    value: int
    mask: int

    @classmethod
    def parse(cls, text: str) -> HeaderFilter:
        """`VALUE` or `VALUE/MASK`, decimal or 0x…; a usage error of one line."""
        value, slash, mask = text.partition("/")
        try:
            bits = int(mask, 0) if slash else _HEADER_BITS
            wanted = int(value, 0)
            if not -(1 << 31) <= wanted <= _HEADER_BITS or not 0 <= bits <= _HEADER_BITS:
                raise ValueError(text)
        except ValueError:
            raise UsageError(
                f"a header filter is VALUE or VALUE/MASK of 32 bits, such as 7 or 0x10/0xf0, not {text!r}"
            ) from None
        return cls(wanted & bits, bits)

    def __call__(self, header: int) -> bool:
        return header & self.mask == self.value


@dataclass(frozen=True, slots=True)
class Search:
    """Which transactions are wanted: by header, by the client that appended them; None = whatever it is."""

    header: HeaderFilter | None = None
    client: int | None = None

    @classmethod
    def of(cls, header: str | None, client: int | None) -> Search | None:
        """None when all are wanted; a usage error of one line."""
        if header is None and client is None:
            return None
        return cls(None if header is None else HeaderFilter.parse(header), client)

    def __call__(self, one: FeedTransaction) -> bool:
        if self.client is not None and one.req_id.client_id != self.client:
            return False
        return self.header is None or self.header(one.header)


@dataclass(frozen=True, slots=True)
class Line:
    """One transaction to append; None = as on the command line."""

    data: bytes
    header: int | None = None
    partition: int | None = None


def describe(transaction: FeedTransaction) -> dict[str, object]:
    """One transaction as a JSON object."""
    line: dict[str, object] = {
        "partition": transaction.partition_id,
        "transaction": transaction.transaction_id,
        "header": transaction.header,
        "client": transaction.req_id.client_id,
    }
    if transaction.data is not None:
        line |= payload(transaction.data)
    return line


def payload(data: bytes) -> dict[str, object]:
    """Text as `data`, anything else as `data_base64`."""
    try:
        return {"data": data.decode()}
    except UnicodeDecodeError:
        return {"data_base64": base64.b64encode(data).decode()}


def show(line: Mapping[str, object]) -> str:
    """The same for a person: partition, id, header, payload."""
    text = line.get("data", line.get("data_base64", ""))
    return f"{line['partition']} {line['transaction']} header={line['header']} {text}".rstrip()


def plain_lines(source: BinaryIO) -> Iterator[Line]:
    """Every line is a payload."""
    for line in source:
        yield Line(line.rstrip(b"\r\n"))


def json_lines(source: BinaryIO) -> Iterator[Line]:
    """What `tail` prints: `data` or `data_base64`, and perhaps `header` and `partition`; the rest is
    ignored."""
    for number, raw in enumerate(source, 1):
        if raw.strip():
            yield _json_line(number, raw)


def _json_line(number: int, raw: bytes) -> Line:
    try:
        fields = json.loads(raw)
        if not isinstance(fields, dict):
            raise TypeError("it is no object")
        text, encoded = fields.get("data"), fields.get("data_base64")
        if isinstance(encoded, str):
            data = base64.b64decode(encoded, validate=True)
        elif isinstance(text, str):
            data = text.encode()
        else:
            raise TypeError("it has neither data nor data_base64")
        return Line(
            data,
            _whole(fields, "header", -(1 << 31), (1 << 31) - 1),
            _whole(fields, "partition", 0, (1 << 31) - 1),
        )
    except (ValueError, TypeError, RecursionError) as error:  # that of base64 is a ValueError
        raise UsageError(f"line {number} of the input is no transaction: {error}") from None


def _whole(fields: Mapping[str, object], name: str, low: int, high: int) -> int | None:
    value = fields.get(name)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"its {name} is no whole number")
    if not low <= value <= high:
        raise ValueError(f"its {name} {value} is not between {low} and {high}")
    return value


def parse_lock(text: str) -> LockId:
    """`NAME:ID` with a number, or `NAME/KEY` with a text; a usage error of one line."""
    name, colon, number = text.rpartition(":")
    group, _, key = text.partition("/")
    try:
        if name and colon:
            return LockId(name, int(number))
    except ValueError:
        pass  # a colon may be in a key
    if group and key:
        return LockId.of(group, os.fsencode(key))
    raise UsageError(
        "a lock is NAME:ID with a whole number, such as account:42, or NAME/KEY with any text, such as "
        f"account/alice, not {text!r}"
    )
