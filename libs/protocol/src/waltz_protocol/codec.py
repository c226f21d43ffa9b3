"""Messages to frames and back, for every version, from the one definition of each message.

`CLIENT`, `STORAGE`, `ADMIN` and `PEER` are built at import from the annotated fields of the message classes
(see `messages.fields`); a type used twice, or a field without a wire form, fails the import. Decoding raises
ProtocolError and nothing else, whatever the bytes are; encoding raises EncodeError."""

import dataclasses
from collections.abc import Iterable
from typing import Any, NamedTuple, get_type_hints

from waltz_protocol.buffer import Reader, Writer
from waltz_protocol.errors import EncodeError, ProtocolError
from waltz_protocol.frame import Magic, frame
from waltz_protocol.messages import admin, client, peer, storage
from waltz_protocol.messages.fields import Message, Since, Wire


class _Field(NamedTuple):
    name: str
    wire: Wire
    since: int
    default: Any


class _Layout(NamedTuple):
    cls: type[Message]
    fields: tuple[_Field, ...]
    rest: Wire | None
    verified: bool


def _layout(cls: type[Message]) -> _Layout:
    hints = get_type_hints(cls, include_extras=True)
    rest: Wire | None = getattr(cls, "REST", None)
    fields = []
    for field in dataclasses.fields(cls):
        metadata = getattr(hints[field.name], "__metadata__", ())
        wires = [m for m in metadata if isinstance(m, Wire)]
        if not wires and rest is not None:
            break
        if len(wires) != 1:
            raise TypeError(f"{cls.__name__}.{field.name} needs exactly one wire form")
        since = next((m for m in metadata if isinstance(m, Since)), Since(0))
        fields.append(_Field(field.name, wires[0], since.version, since.default))
    return _Layout(cls, tuple(fields), rest, hasattr(cls, "verify"))


class Protocol:
    """One of the protocols: its magic, its versions and its messages."""

    def __init__(
        self, name: str, magic: int, versions: tuple[int, ...], messages: Iterable[type[Message]]
    ) -> None:
        self.name: str = name
        self.magic: int = magic
        self.versions: tuple[int, ...] = versions
        self._by_type: dict[int, _Layout] = {}
        self._by_class: dict[type[Any], _Layout] = {}
        for cls in messages:
            if cls.TYPE in self._by_type:
                other = self._by_type[cls.TYPE].cls.__name__
                raise TypeError(f"{name}: {cls.__name__} and {other} both have type {cls.TYPE}")
            layout = _layout(cls)
            self._by_type[cls.TYPE] = layout
            self._by_class[cls] = layout

    @property
    def messages(self) -> tuple[type[Message], ...]:
        """All message classes, in the order of their definition."""
        return tuple(layout.cls for layout in self._by_type.values())

    def encode(self, message: Message, version: int) -> bytes:
        """The whole frame. EncodeError when `version` lacks the message or a field that is not empty."""
        return frame(self.magic, version, self.encode_body(message, version))

    def encode_body(self, message: Message, version: int) -> bytes:
        """The body alone, without the 7 bytes of frame header."""
        layout = self._by_class.get(type(message))
        if layout is None:
            raise EncodeError(f"{type(message).__name__} is no message of the {self.name} protocol")
        if version not in self.versions or version < message.SINCE:
            raise EncodeError(f"{type(message).__name__} cannot be sent with protocol version {version}")
        writer = Writer()
        writer.i8(message.TYPE)
        for field in layout.fields:
            value = getattr(message, field.name)
            if version >= field.since:
                field.wire.write(writer, value, version)
            elif value:
                raise EncodeError(f"{field.name} cannot be sent with protocol version {version}")
        if layout.rest is not None:
            layout.rest.write(writer, message, version)
        return writer.bytes()

    def decode(self, body: bytes | bytearray | memoryview, version: int) -> Message:
        """The message in a body. ProtocolError for an unknown type (also one newer than `version`), for
        missing or left-over bytes and for data that does not match its checksum."""
        if version not in self.versions:
            raise ProtocolError(f"the {self.name} protocol has no version {version}")
        reader = Reader(body)
        code = reader.i8()
        layout = self._by_type.get(code)
        if layout is None or version < layout.cls.SINCE:
            raise ProtocolError(
                f"unknown message type {code} in version {version} of the {self.name} protocol"
            )
        values: dict[str, Any] = {}
        for field in layout.fields:
            values[field.name] = field.wire.read(reader, version) if version >= field.since else field.default
        if layout.rest is not None:
            values.update(layout.rest.read(reader, version))
        reader.finish()
        message = layout.cls(**values)
        if layout.verified:
            message.verify()  # type: ignore[attr-defined]
        return message


CLIENT = Protocol("client-server", Magic.CLIENT, (0, 1, 2, 3, 4, 5), client.MESSAGES)
STORAGE = Protocol("storage", Magic.STORAGE, (0, 1), storage.MESSAGES)
ADMIN = Protocol("storage admin", Magic.ADMIN, (0, 1), admin.MESSAGES)
PEER = Protocol("server peer", Magic.CLIENT, (peer.PEER_VERSION,), peer.MESSAGES)
NEWEST_OF_0_13_2 = 4
"""The newest version of the client-server protocol that release 0.13.2 speaks; ours are above it."""
NEWEST_CLIENT_VERSION = CLIENT.versions[-1]
STORAGE_OF_0_13_2 = 0
"""The version of the storage protocol that release 0.13.2 speaks."""
NEWEST_STORAGE_VERSION = STORAGE.versions[-1]


def client_versions(newest: int) -> tuple[int, ...]:
    """What the Hello of a side says that speaks the client-server protocol up to `newest`."""
    return tuple(version for version in CLIENT.versions if version <= newest)


def storage_versions(newest: int) -> tuple[int, ...]:
    """The same of the storage protocol."""
    return tuple(version for version in STORAGE.versions if version <= newest)
