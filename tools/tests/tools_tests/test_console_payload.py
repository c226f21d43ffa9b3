"""Payloads as a person reads them."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waltz_tools.console.msgpack import MAX_DEPTH, NotMessagePackError, decode
from waltz_tools.console.payload import (
    MAX_PRETTY_CHARACTERS,
    MAX_SHOWN_BYTES,
    PREVIEW_CHARACTERS,
    kind_of,
    preview,
    views,
)


@pytest.mark.parametrize(
    ("data", "value"),
    [
        ("00", 0), ("7f", 127), ("ff", -1), ("e0", -32), ("c0", None), ("c2", False), ("c3", True), ("cc80", 128),
        ("cd0100", 256), ("ce00010000", 65536), ("cf0000000100000000", 1 << 32), ("d080", -128), ("d1ff00", -256),
        ("d2ffff0000", -65536), ("d3ffffffff00000000", -(1 << 32)), ("cb3ff8000000000000", 1.5), ("ca3fc00000", 1.5),
        ("a0", ""), ("a3616263", "abc"), ("d903616263", "abc"), ("da0003616263", "abc"), ("db00000003616263", "abc"),
        ("90", []), ("9301c0a161", [1, None, "a"]), ("dc00020102", [1, 2]), ("dd000000020102", [1, 2]), ("80", {}),
        ("82a16101a16290", {"a": 1, "b": []}), ("de0001a16101", {"a": 1}), ("df00000001a16101", {"a": 1}),
        ("810102", {"1": 2}), ("c4021234", "<bytes, 2 bytes: 1234>"), ("d40105", "<extension 1, 1 bytes: 05>"),
        ("c7020561ff", "<extension 5, 2 bytes: 61ff>"), ("d5010203", "<extension 1, 2 bytes: 0203>"),
    ],
)  # fmt: skip
def test_messagepack_is_read(data: str, value: object) -> None:
    assert decode(bytes.fromhex(data)) == value


@pytest.mark.parametrize(
    "data", ["", "c1", "a2ff", "92", "0000", "a2ffff", "91" * (MAX_DEPTH + 2) + "00", "ddffffffff00"]
)
def test_what_is_no_messagepack_is_refused(data: str) -> None:
    with pytest.raises(NotMessagePackError):
        decode(bytes.fromhex(data))


@given(st.binary(max_size=200))
def test_any_bytes_are_shown_somehow(data: bytes) -> None:
    shown = views(data)
    assert shown["size"] == len(data)
    assert kind_of(data) == shown["kind"] == preview(data)["kind"]
    assert isinstance(shown["hex"], str)
    assert len(str(preview(data)["line"])) <= PREVIEW_CHARACTERS + 1


@pytest.mark.parametrize(
    ("data", "kind", "line"),
    [
        (b"", "empty", ""),
        (b"hello\nworld", "text", "hello world"),
        (b'{"a": [1,2]}', "json", '{"a": [1, 2]}'),
        (b"12.5", "json", "12.5"),
        (b"12 o'clock", "text", "12 o'clock"),
        ("ünï".encode(), "text", "ünï"),
        (bytes.fromhex("81a161c3"), "msgpack", '{"a": true}'),
        (b"\x00\x01", "binary", "00 01"),
        (struct.pack(">d", 1.0), "binary", "3f f0 00 00 00 00 00 00"),
    ],
)
def test_the_form_of_a_payload(data: bytes, kind: str, line: str) -> None:
    found = preview(data)
    assert (found["kind"], found["line"], found["size"]) == (kind, line, len(data))


def test_a_large_payload_is_cut_and_says_so() -> None:
    shown = views(b"x" * (MAX_SHOWN_BYTES + 1))
    assert shown["cut"] is True
    assert len(str(shown["text"])) == MAX_SHOWN_BYTES
    assert str(preview(b"x" * 1000)["line"]).endswith("…")
    deep = b"[" * 100_000
    assert kind_of(deep[:MAX_SHOWN_BYTES]) == "text", "too deep for JSON, and no error"


@pytest.mark.parametrize(("begin", "end"), [("[", "]"), ('{"a":', "}")])
def test_json_is_as_deep_as_messagepack_may_be_or_text(begin: str, end: str) -> None:
    """With line breaks it would grow with its depth times its width."""
    for depth, kind in ((MAX_DEPTH, "json"), (MAX_DEPTH + 1, "text"), (900, "text")):
        data = (begin * depth + "1" + end * depth).encode()
        shown = views(data)
        assert kind_of(data) == preview(data)["kind"] == shown["kind"] == kind
        assert (shown["json"] is None) == (kind == "text")
        assert shown["text"] == data.decode()


@pytest.mark.parametrize(
    "data",
    [
        b"[" * 30 + b"1," * 30_000 + b"1" + b"]" * 30,
        b"[" * 30 + b"[]," * 20_000 + b"1" + b"]" * 30,
        b"\x91" * 30 + b"\xdc\x4b\x00" + b"\x01" * 0x4B00,
    ],
)
def test_a_form_with_line_breaks_is_cut_and_says_so(data: bytes) -> None:
    shown = views(data)
    pretty = shown["json"] or shown["msgpack"]
    assert isinstance(pretty, str)
    assert MAX_PRETTY_CHARACTERS <= len(pretty) < MAX_PRETTY_CHARACTERS + 1000
    assert (shown["pretty_cut"], shown["cut"]) == (True, False)
    assert views(b"[1, 2]")["pretty_cut"] is False


def test_a_map_as_the_name_of_a_member_does_not_grow() -> None:
    """The text of a text in a text doubles its quotes each time: 2 to the power of the depth."""
    data = b"\x81" * 16 + b"\xa2'\"" + b"\x00" * 16
    assert len(str(views(data)["msgpack"])) < 1000
    assert decode(bytes.fromhex("83910107910208c209")) == {
        "<list of 1 at byte 1>": 7, "<list of 1 at byte 4>": 8, "False": 9,
    }  # fmt: skip


@pytest.mark.parametrize("before", range(4))
def test_text_that_is_cut_within_a_character_is_text(before: int) -> None:
    data = b"x" * before + "\U0001f600".encode() * MAX_SHOWN_BYTES
    shown = views(data)
    assert (shown["kind"], preview(data)["kind"], shown["cut"]) == ("text", "text", True)
    text = shown["text"]
    assert isinstance(text, str)
    assert set(text) <= {"x", "\U0001f600"}
    assert kind_of(data[: before + 2]) == "binary", "nothing is said to be missing"
