"""Serializers: objects to payload bytes and back. The log never looks into a payload."""

from __future__ import annotations

import json
from typing import Any, Protocol, TypeVar

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Deserializer(Protocol[T_co]):
    """The reading half of a serializer."""

    def deserialize(self, data: bytes) -> T_co:
        """The value of payload bytes."""
        ...


class Serializer(Protocol[T]):
    """Both directions of one payload format; errors of either propagate to the caller unchanged."""

    def serialize(self, value: T) -> bytes:
        """The payload bytes of a value."""
        ...

    def deserialize(self, data: bytes) -> T:
        """The value of payload bytes."""
        ...


class BytesSerializer:
    """Payloads as they are."""

    def serialize(self, value: bytes) -> bytes:
        """The bytes themselves (bytearray and memoryview are copied)."""
        return bytes(value)

    def deserialize(self, data: bytes) -> bytes:
        """The bytes themselves."""
        return data


class StringSerializer:
    """Text as UTF-8."""

    def serialize(self, value: str) -> bytes:
        """UTF-8 bytes."""
        return value.encode()

    def deserialize(self, data: bytes) -> str:
        """The text; UnicodeDecodeError when the payload is not UTF-8."""
        return data.decode()


class JsonSerializer:
    """JSON in compact UTF-8."""

    def serialize(self, value: Any) -> bytes:
        """Compact JSON; keys keep their order."""
        return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()

    def deserialize(self, data: bytes) -> Any:
        """The JSON value; json.JSONDecodeError when the payload is not JSON."""
        return json.loads(data)


BYTES = BytesSerializer()
STRING = StringSerializer()
JSON = JsonSerializer()
