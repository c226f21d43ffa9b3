"""Options of reads: names, checks, defaults, and the settings of the client inside.

Spark hands options over as text with names in lower case. A table of `Option` lists what there is;
`parse` checks everything on the driver, one line per mistake, and refuses what it does not know with
the nearest name. The keys of the client library (`servers`, `zookeeper.`, `cluster.`, `client.`) pass to
it. The sink has a table of its own and uses the same functions. Names that people know from Spark's Kafka
source are in `kafka_names`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyspark

from waltz_client import ClientSettings
from waltz_cluster.config.unknown_keys import nearest
from waltz_cluster.errors import ConfigError
from waltz_spark.errors import OptionError
from waltz_spark.kafka_names import hint
from waltz_spark.offsets import EARLIEST, LATEST, Position

BATCH, STREAM, WRITE, STREAM_WRITE = "a batch read", "a streaming read", "a batch write", "a streaming write"
READS = frozenset({BATCH, STREAM})
WRITES = frozenset({WRITE, STREAM_WRITE})

OLDEST_SPARK, LIMITS_SINCE = (4, 0), (4, 2)
"""The Spark that is needed; which passes Python sources a trigger's limit, and the start of the trigger."""

LARGEST = 2**63 - 1
"""Of a number: what Spark and the log keep one in."""
SPARKS_OWN = frozenset({"checkpointlocation", "queryname", "outputmode"})
"""Options that Spark passes on to every source and sink though they are its own."""
SPARK_FILE = "sparkfiles:"
"""Before a file name: the file was sent along with `--files` or `SparkContext.addFile`."""
_FILE_SUFFIXES = ("keyStore.location", "keyStore.keyFile", "trustStore.location", "zookeeper.auth.file")
_SECRET_SUFFIXES = (".password", "zookeeper.auth")
_DEFAULT_SESSION_TIMEOUT_MS = "30000"


@dataclass(frozen=True, slots=True)
class Option:
    """One option. `read` makes its value of the text, or raises ValueError with the reason; `uses`: where
    it has a meaning; `since`: the first Spark that can do it, where that is not the oldest supported one."""

    name: str
    read: Callable[[str], Any]
    default: Any
    uses: frozenset[str] = READS
    since: tuple[int, int] = OLDEST_SPARK


_CLUSTER_KEY = "client.clusterKey"


def is_secret(key: str) -> bool:
    """Whether the value of this option is for nobody's eyes; however the name is written."""
    return key.lower().endswith(_SECRET_SUFFIXES)


class ClientKeys:
    """The client's keys as given, checked. Pickles, compares and hashes; never shows a secret."""

    __slots__ = ("_flat",)

    def __init__(self, flat: Mapping[str, str]) -> None:
        self._flat = dict(flat)

    def settings(self) -> ClientSettings:
        """For this process: `sparkfiles:` names are looked up among the files that Spark brought here."""
        flat: dict[str, object] = {key: _local_path(key, value) for key, value in self._flat.items()}
        return ClientSettings.load(flat)

    @property
    def leaves_cluster_open(self) -> bool:
        """Whether the first server of the list that answers decides which cluster a process follows."""
        return "servers" in self._flat and _CLUSTER_KEY not in self._flat

    def of_cluster(self, key: str) -> ClientKeys:
        """The same, for this cluster alone: all processes of a job follow the one that its driver follows."""
        return ClientKeys({**self._flat, _CLUSTER_KEY: key}) if self.leaves_cluster_open else self

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ClientKeys) and other._flat == self._flat

    def __hash__(self) -> int:
        return hash(tuple(sorted(self._flat.items())))

    def __repr__(self) -> str:
        shown = {key: "***" if is_secret(key) else value for key, value in self._flat.items()}
        return f"ClientKeys({shown})"


def _local_path(key: str, value: str) -> str:
    if not (key.endswith(_FILE_SUFFIXES) and value.startswith(SPARK_FILE)):
        return value
    from pyspark import SparkFiles

    return SparkFiles.get(value.removeprefix(SPARK_FILE))


# -- values --------------------------------------------------------------------------------------------------


def whole_number(at_least: int) -> Callable[[str], int]:
    """Reads a whole number that is not below `at_least`."""

    def read(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            raise ValueError("it is not a whole number") from None
        if value < at_least:
            raise ValueError(f"it must be at least {at_least}")
        if value > LARGEST:
            raise ValueError(f"it must be at most {LARGEST}")
        return value

    return read


def true_or_false(text: str) -> bool:
    """Reads `true` or `false`."""
    if text.lower() not in ("true", "false"):
        raise ValueError("it must be true or false")
    return text.lower() == "true"


def one_of(*choices: str) -> Callable[[str], str]:
    """Reads one of some words."""

    def read(text: str) -> str:
        if text.lower() not in choices:
            raise ValueError(f"it must be {' or '.join(choices)}")
        return text.lower()

    return read


def partition_list(text: str) -> tuple[int, ...]:
    """Reads `0,2,5` or `0-3,7`: partitions, ascending, each once."""
    found: set[int] = set()
    for part in text.split(","):
        low, dash, high = part.strip().partition("-")
        if not low.isdecimal() or (dash and not high.strip().isdecimal()):
            raise ValueError("it must be partition numbers and spans like 0,2,5-7")
        first, last = int(low), int(high if dash else low)
        if not 0 <= last - first < 100_000:
            raise ValueError(f"{part.strip()} is not a span of partitions")
        found.update(range(first, last + 1))
    return tuple(sorted(found))


def header(text: str) -> int:
    """Reads a header: a signed 32-bit number, decimal or 0x..."""
    try:
        value = int(text, 0)
    except ValueError:
        raise ValueError(f"{text.strip()!r} is not a whole number") from None
    if not -(2**31) <= value < 2**31:
        raise ValueError(f"{text.strip()} is not a signed 32-bit number")
    return value


def header_list(text: str) -> frozenset[int]:
    """Reads `1,2,0x10`: headers."""
    return frozenset(header(part) for part in text.split(","))


def position(text: str) -> Position:
    """Reads `earliest`, `latest` or a JSON object: partition to transaction id, -2 (earliest) or -1
    (latest)."""
    if text.strip().lower() in ("earliest", "latest"):
        return EARLIEST if text.strip().lower() == "earliest" else LATEST
    try:
        given = json.loads(
            text, object_pairs_hook=tuple
        )  # an object, with every name as often as it is there
    except (ValueError, RecursionError):
        raise ValueError('it must be earliest, latest, or JSON like {"0": 100, "1": -1}') from None
    if not isinstance(given, tuple) or not given:
        raise ValueError('the JSON must be an object like {"0": 100, "1": -1}')
    found: dict[int, int] = {}
    for key, value in given:
        if not key.isdecimal():
            raise ValueError(f"{key!r} is not a partition number")
        if int(key) in found:
            raise ValueError(f"partition {int(key)} is named twice")
        if isinstance(value, bool) or not isinstance(value, int) or not -2 <= value <= LARGEST:
            raise ValueError(f"{json.dumps(value)} of partition {key} is not a transaction id, -1 or -2")
        found[int(key)] = value
    return dict(sorted(found.items()))


# -- reading the table ---------------------------------------------------------------------------------------


def parse(given: Mapping[str, str], table: Sequence[Option], use: str) -> tuple[dict[str, Any], ClientKeys]:
    """Values by name of everything in `table` that has a meaning in `use` (defaults filled in), and the
    client's keys.

    OptionError, one line, for the first mistake. Names are compared without regard to case.
    """
    own = {option.name.lower(): option for option in table}
    known_keys: list[str] = ClientSettings.keys()
    client = {key.lower(): key for key in known_keys}
    values = {option.name: option.default for option in table if use in option.uses}
    flat: dict[str, str] = {}
    for name, text in given.items():
        folded = name.lower()
        if folded in SPARKS_OWN:
            continue
        if folded in own:
            values[own[folded].name] = _value(own[folded], text, use)
        elif folded in client:
            flat[client[folded]] = text
        else:
            raise OptionError(_unknown(name, own, client, use))
    return values, _checked_client(flat)


def _value(option: Option, text: str, use: str) -> Any:
    if use not in option.uses:
        meant = " and ".join(sorted(option.uses))
        raise OptionError(f"option {option.name} has no meaning for {use} (it is for {meant}): remove it")
    try:
        value = option.read(text)
    except ValueError as error:
        raise OptionError(f"option {option.name} = {text!r}: {error}") from None
    if value != option.default and not spark_is_at_least(option.since):
        major, minor = option.since
        raise OptionError(
            f"option {option.name} needs Spark {major}.{minor} or newer, this is {pyspark.__version__}: remove it"
        )
    return value


def spark_is_at_least(version: tuple[int, int]) -> bool:
    """Whether the Spark of this process is of this version or a newer one."""
    major, minor = (int(part) for part in pyspark.__version__.split(".")[:2])
    return (major, minor) >= version


def _unknown(name: str, own: Mapping[str, Option], client: Mapping[str, str], use: str) -> str:
    if name.lower() == "path":
        return "a log has no path: give servers, or zookeeper.connectString and cluster.root, and call load() or save() without one"
    if name.lower() == "pushfilters":
        return (
            "there is no option pushFilters any longer (Spark confuses the filters of queries on one DataFrame): use headers, partitions, "
            "startingTransactions and endingTransactions"
        )
    of_kafka = hint(name, writes=use in WRITES)
    if of_kafka is not None:
        return of_kafka
    near = nearest(name, [*(option.name for option in own.values()), *client.values()])
    if near is None:
        options = ", ".join(option.name for option in own.values() if use in option.uses)
        return f"unknown option {name}: {use} takes {options}, and the client's keys servers, zookeeper.*, cluster.* and client.*"
    return f"unknown option {name}; did you mean {near}?"


def _checked_client(flat: dict[str, str]) -> ClientKeys:
    if "servers" not in flat:
        flat.setdefault("zookeeper.sessionTimeout", _DEFAULT_SESSION_TIMEOUT_MS)
    try:
        ClientSettings.from_mapping(flat, source="options")
    except ConfigError as error:
        raise OptionError(str(error)) from None
    return ClientKeys(flat)


# -- reads ---------------------------------------------------------------------------------------------------

READ_TABLE = (
    Option("partitions", partition_list, None),
    Option("startingTransactions", position, None),
    Option("endingTransactions", position, LATEST, frozenset({BATCH})),
    Option("minPartitions", whole_number(1), None),
    Option("maxTransactionsPerPartition", whole_number(1), None),
    Option("includeData", true_or_false, True),
    Option("deserializer", one_of("binary", "utf8"), "binary"),
    Option("failOnDataLoss", true_or_false, True),
    Option("headers", header_list, None),
    Option("maxTransactionsPerTrigger", whole_number(1), None, frozenset({STREAM}), since=LIMITS_SINCE),
    Option("maxBytesPerTrigger", whole_number(1), None, frozenset({STREAM}), since=LIMITS_SINCE),
    Option("minTransactionsPerTrigger", whole_number(1), None, frozenset({STREAM}), since=LIMITS_SINCE),
    Option("maxTriggerDelayMs", whole_number(1), 15 * 60 * 1000, frozenset({STREAM})),
    Option("readTimeoutMs", whole_number(1), 120_000),
    Option("batchTransactions", whole_number(1), 16_384),
    Option("batchBytes", whole_number(1), 8 * 1024 * 1024),
)


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """The options of a read, checked. Times are milliseconds, sizes bytes; None = no limit, or everything."""

    client: ClientKeys
    partitions: tuple[int, ...] | None
    headers: frozenset[int] | None
    starting: Position
    ending: Position
    min_partitions: int | None
    max_transactions_per_partition: int | None
    include_data: bool
    deserializer: str
    fail_on_data_loss: bool
    max_transactions_per_trigger: int | None
    max_bytes_per_trigger: int | None
    min_transactions_per_trigger: int | None
    max_trigger_delay_ms: int
    read_timeout_ms: int
    batch_transactions: int
    batch_bytes: int

    @classmethod
    def load(cls, given: Mapping[str, str], use: str) -> ReadOptions:
        """Check what was given for `BATCH` or `STREAM`; OptionError, one line."""
        values, client = parse(given, READ_TABLE, use)
        starting = values["startingTransactions"]
        if starting is None:
            starting = EARLIEST if use == BATCH else LATEST
        elif starting == LATEST and use == BATCH:
            raise OptionError("option startingTransactions = latest: a batch read from the end has no rows")
        ending = values.get("endingTransactions", LATEST)
        if ending == EARLIEST or (isinstance(ending, Mapping) and -2 in ending.values()):
            raise OptionError("option endingTransactions: a read that ends at the beginning has no rows")
        if values["deserializer"] != "binary" and not values["includeData"]:
            raise OptionError("option deserializer needs includeData = true")
        if values["batchBytes"] > 2**30:
            raise OptionError(f"option batchBytes = {values['batchBytes']}: it must be at most {2**30}")
        return cls(
            client=client,
            partitions=values["partitions"],
            headers=values["headers"],
            starting=starting,
            ending=ending,
            min_partitions=values["minPartitions"],
            max_transactions_per_partition=values["maxTransactionsPerPartition"],
            include_data=values["includeData"],
            deserializer=values["deserializer"],
            fail_on_data_loss=values["failOnDataLoss"],
            max_transactions_per_trigger=values.get("maxTransactionsPerTrigger"),
            max_bytes_per_trigger=values.get("maxBytesPerTrigger"),
            min_transactions_per_trigger=values.get("minTransactionsPerTrigger"),
            max_trigger_delay_ms=values.get("maxTriggerDelayMs", 0),
            read_timeout_ms=values["readTimeoutMs"],
            batch_transactions=values["batchTransactions"],
            batch_bytes=values["batchBytes"],
        )


def check_at_load(given: Mapping[str, str]) -> None:
    """What can be checked when Spark asks for the columns, before it shows whether the read is a batch or a
    stream: the options are right for one of them. OptionError, one line."""
    mistakes: dict[str, OptionError] = {}
    for use in (BATCH, STREAM):
        try:
            ReadOptions.load(given, use)
        except OptionError as mistake:
            mistakes[use] = mistake
        else:
            return
    of_streams = {option.name.lower() for option in READ_TABLE if option.uses == {STREAM}}
    raise mistakes[STREAM if any(name.lower() in of_streams for name in given) else BATCH] from None
