"""Options of writes, in the manner of `waltz_spark.options`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import quote

from waltz_spark.errors import OptionError
from waltz_spark.options import (
    STREAM_WRITE,
    WRITE,
    WRITES,
    ClientKeys,
    Option,
    header,
    one_of,
    parse,
    whole_number,
)
from waltz_spark.sink.attempt import OnConflict
from waltz_spark.sink.task_claims import CLAIM_HEADER
from waltz_spark.sink.task_writer import WriteSettings

EXACTLY_ONCE, AT_LEAST_ONCE = "exactly-once", "at-least-once"
_WINDOW = "client.maxConcurrentTransactions"
_PIPELINE = "1024"
"""Appends on their way per partition where the options set none: a client's own default is for programs
that append one by one."""


def _text(text: str) -> str:
    if not text.strip():
        raise ValueError("it is empty")
    return text.strip()


WRITE_TABLE = (
    Option("delivery", one_of(EXACTLY_ONCE, AT_LEAST_ONCE), EXACTLY_ONCE, WRITES),
    Option("onConflict", one_of(*(one.value for one in OnConflict)), OnConflict.FAIL.value, WRITES),
    Option("claimHeader", header, CLAIM_HEADER, WRITES),
    Option("stateLocation", _text, None, WRITES),
    Option("writeId", _text, None, frozenset({WRITE})),
    Option("writeTimeoutMs", whole_number(1), 120_000, WRITES),
)


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """The options of a write, checked. `state_location`: None = nothing is kept beyond this run of the
    driver. `in_checkpoint`: it is in the checkpoint of the query, as no other location was given."""

    client: ClientKeys
    delivery: str
    on_conflict: OnConflict
    claim_header: int
    state_location: str | None
    in_checkpoint: bool
    write_id: str | None
    timeout_seconds: float

    @classmethod
    def load(cls, given: Mapping[str, str], use: str) -> WriteOptions:
        """Check what was given for `WRITE` or `STREAM_WRITE`; OptionError, one line."""
        window = {} if _WINDOW.lower() in {key.lower() for key in given} else {_WINDOW: _PIPELINE}
        values, client = parse({**given, **window}, WRITE_TABLE, use)
        location = values["stateLocation"]
        exactly = values["delivery"] == EXACTLY_ONCE
        in_checkpoint = use == STREAM_WRITE and location is None
        if in_checkpoint:
            checkpoint = {key.lower(): value for key, value in given.items()}.get("checkpointlocation")
            location = None if checkpoint is None else f"{_as_uri(checkpoint).rstrip('/')}/waltz-sink"
        if use == STREAM_WRITE and exactly and location is None:
            raise OptionError(
                "delivery = exactly-once needs the option checkpointLocation on the write itself, or stateLocation: a folder that "
                "outlives the driver"
            )
        if use == WRITE and location is not None and values.get("writeId") is None:
            raise OptionError(
                "option stateLocation of a batch write needs writeId: the name of the write that must not happen twice"
            )
        if not exactly and values["onConflict"] == OnConflict.RETRY.value:
            raise OptionError("option onConflict = retry needs delivery = exactly-once")
        return cls(
            client=client,
            delivery=values["delivery"],
            on_conflict=OnConflict(values["onConflict"]),
            claim_header=values["claimHeader"],
            state_location=location if exactly else None,
            in_checkpoint=in_checkpoint,
            write_id=values.get("writeId"),
            timeout_seconds=values["writeTimeoutMs"] / 1000,
        )

    @property
    def settings(self) -> WriteSettings:
        """What the attempts need of it."""
        return WriteSettings(self.timeout_seconds, self.claim_header, self.on_conflict)


def _as_uri(location: str) -> str:
    """A place as Spark takes it: a path, or a scheme and then a path whose characters all mean themselves."""
    if location.startswith("/") or ":" not in location:
        return location
    return quote(location, safe=":/@!$&'()*+,;=")
