"""The tables of messages in docs/protocol.md are made from the message classes; WALTZ_WRITE_DOCS=1 writes
them."""

import dataclasses
import os
import re
from typing import Any, get_type_hints

import pytest

from tests.repo.files import ROOT
from waltz_protocol.codec import ADMIN, CLIENT, PEER, STORAGE, Protocol
from waltz_protocol.messages import client, fields
from waltz_protocol.messages.fields import Message, Since, Wire

DOCUMENT = ROOT / "docs" / "protocol.md"
PROTOCOLS = {"client": CLIENT, "storage": STORAGE, "admin": ADMIN, "peer": PEER}

FORMS = {
    "Int": "i32",
    "Long": "i64",
    "Bool": "bool",
    "Text": "text",
    "Octets": "bytes",
    "Ints": "i32 array",
    "IntList": "i32 array",
    "Ranges": "i32 count, then i32 first and i32 last each",
    "Servers": "i32 count, then text host, i32 port, i32 count, i32 partition and i32 generation each",
    "Checkpoints": "i32 count, then i32 partition, i64 origin, i64 mark and i32 sequence number each",
    "Rest": "records up to the end",
    "Key": "16 bytes",
    "WireReqId": "request id",
    "TextBoolMap": "i32 count, then text and bool each",
    "IntBoolMap": "i32 count, then i32 and bool each",
    "FoundRecord": "bool, then the record if true",
    "RecordList": "i32 count, then records",
    "FoundHeader": "bool, then the record header if true",
    "HeaderList": "i32 count, then record headers",
    "Session": "session id, low-water mark, local low-water mark: i64 each",
    "Error": "text, i32 count, then per stack line class, method, file (texts) and line (i32)",
}
"""Wire forms that the module of the fields names."""

OTHER_FORMS = {
    "MountResponse.state": "bool (true = READY) before version 3, i32 since",
}
RESTS = {
    "TransactionDataResponse": "bool; if true: bytes data, i32 checksum; if false: text",
}
PREFIXES = {
    "client": ["req_id"],
    "storage": ["session_id", "seq_num", "partition_id"],
    "admin": [],
    "peer": [],
}
"""Fields every body of a protocol begins with: said in the text, not in each line."""


def _wire_names() -> dict[int, str]:
    found = {}
    for name in FORMS:
        (wire,) = [m for m in getattr(fields, name).__metadata__ if isinstance(m, Wire)]
        found[id(wire)] = name
    return found


def _form(message: type[Message], name: str, metadata: tuple[Any, ...], names: dict[int, str]) -> str:
    (wire,) = [m for m in metadata if isinstance(m, Wire)]
    form = FORMS[names[id(wire)]] if id(wire) in names else OTHER_FORMS[f"{message.__name__}.{name}"]
    since = [m.version for m in metadata if isinstance(m, Since)]
    return f"{form} (since version {since[0]})" if since else form


def _words(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name).lower().replace("_", " ")


def _row(protocol: str, message: type[Message], names: dict[int, str]) -> str:
    hints = get_type_hints(message, include_extras=True)
    cells = []
    for field in dataclasses.fields(message):
        metadata = getattr(hints[field.name], "__metadata__", ())
        if field.name in PREFIXES[protocol]:
            continue
        if not metadata:  # what depends on each other is one form
            cells.append(RESTS[message.__name__])
            break
        cells.append(f"{_words(field.name)}: {_form(message, field.name, metadata, names)}")
    meaning = (message.__doc__ or "").split("\n\n")[0].replace("\n", " ")
    meaning = re.sub(r" See `[\w.]+` for the hot path\.", "", meaning)
    meaning = re.sub(r"The hot path uses `[\w.]+` instead; a null", "A null", meaning)
    since = f", since {message.SINCE}" if message.SINCE else ""
    return f"| {message.TYPE} | {_words(message.__name__)}{since} | {'<br>'.join(cells)} | {re.sub(' +', ' ', meaning)} |"


def table(protocol: str) -> str:
    names = _wire_names()
    spoken: Protocol = PROTOCOLS[protocol]
    lines = ["| type | message | fields | meaning |", "| --- | --- | --- | --- |"]
    return "\n".join([*lines, *(_row(protocol, message, names) for message in spoken.messages)])


def rendered(text: str) -> str:
    """The document with its tables made again."""
    for protocol in PROTOCOLS:
        mark = f"<!-- made from the code: {protocol} -->\n"
        before, found, after = text.partition(mark)
        assert found, mark
        rest = re.sub(r"\A\n?(\|.*\n)*", "", after)
        text = f"{before}{mark}\n{table(protocol)}\n{'' if rest.startswith(chr(10)) else chr(10)}{rest}"
    return text


def test_the_tables_are_what_the_code_says() -> None:
    text = DOCUMENT.read_text()
    if os.environ.get("WALTZ_WRITE_DOCS"):
        DOCUMENT.write_text(rendered(text))
        text = DOCUMENT.read_text()
    assert text == rendered(text), "run with WALTZ_WRITE_DOCS=1 to write docs/protocol.md"


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_no_message_is_missing(protocol: str) -> None:
    listed = re.findall(r"^\| (\d+) \|", table(protocol), re.MULTILINE)
    assert listed == [str(message.TYPE) for message in PROTOCOLS[protocol].messages]


def test_special_forms_name_messages_that_exist() -> None:
    assert {name.partition(".")[0] for name in (*OTHER_FORMS, *RESTS)} <= {
        m.__name__ for m in client.MESSAGES
    }
