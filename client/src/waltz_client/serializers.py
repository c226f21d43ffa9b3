"""Serializers: objects to payload bytes and back. The log never looks into a payload."""

from __future__ import annotations

import json
from typing import Any, Protocol, TypeVar

from waltz_client.errors import PayloadError

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Deserializer(Protocol[T_co]):
    """The reading half of a serializer."""

    def deserialize(self, data: bytes) -> T_co:
        """The value of payload bytes."""
        ...


class Serializer(Protocol[T]):
    """Both directions of one payload format. What they raise reaches the caller as the cause of a
    PayloadError."""

    def serialize(self, value: T) -> bytes:
        """The payload bytes of a value."""
        ...

    def deserialize(self, data: bytes) -> T:
        """The value of payload bytes."""
        ...


def payload_of(value: T, serializer: Serializer[T]) -> bytes:
    """The payload bytes of a value; PayloadError when the serializer cannot write it."""
    try:
        data: object = serializer.serialize(value)
    except Exception as error:
        raise PayloadError(
            f"{_name(serializer)} cannot write this {type(value).__name__}: {_why(error)}"
        ) from error
    if not isinstance(data, bytes):
        raise PayloadError(f"{_name(serializer)} made {type(data).__name__}, and a payload is bytes")
    return data


def value_of(data: bytes, serializer: Deserializer[T], partition: int, transaction_id: int) -> T:
    """The value of the payload of a transaction; PayloadError when the serializer cannot read it."""
    try:
        return serializer.deserialize(data)
    except Exception as error:
        raise PayloadError(
            f"partition {partition}: {_name(serializer)} cannot read the {len(data)} bytes of transaction "
            f"{transaction_id}: {_why(error)}"
        ) from error


def _name(serializer: object) -> str:
    return type(serializer).__name__


def _why(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".partition("\n")[0]


class BytesSerializer:
    """Payloads as they are."""

    def serialize(self, value: bytes) -> bytes:
        """The bytes themselves (bytearray and memoryview are copied)."""
        return bytes(memoryview(value))

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
