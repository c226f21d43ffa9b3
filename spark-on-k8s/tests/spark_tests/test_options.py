"""Options: each mistake is one clear line, and no secret is ever shown."""

import pickle
from collections.abc import Mapping
from pathlib import Path

import pytest

from waltz_client import ClientSettings
from waltz_spark.errors import OptionError
from waltz_spark.offsets import EARLIEST, LATEST
from waltz_spark.options import (
    BATCH,
    READ_TABLE,
    STREAM,
    ClientKeys,
    ReadOptions,
    check_at_load,
    spark_is_at_least,
)
from waltz_spark.sink.options import WRITE_TABLE

CLUSTER = {"zookeeper.connectString": "zk:2181", "cluster.root": "/ledger"}


def load(use: str = BATCH, **options: str) -> ReadOptions:
    return ReadOptions.load({**CLUSTER, **options}, use)


def test_defaults_are_those_of_a_log_source() -> None:
    batch, stream = load(), load(STREAM)
    assert (batch.starting, batch.ending, stream.starting) == (EARLIEST, LATEST, LATEST)
    assert batch.include_data
    assert batch.fail_on_data_loss
    assert batch.client.settings().zookeeper_session_timeout_ms == 30_000


def test_names_may_be_in_any_case_as_spark_hands_them_over_in_lower_case() -> None:
    options = ReadOptions.load(
        {"ZOOKEEPER.connectstring": "zk:2181", "cluster.root": "/l", "maxtransactionsperpartition": "5"},
        STREAM,
    )
    assert options.max_transactions_per_partition == 5
    assert options.client.settings().zookeeper_connect_string == "zk:2181"


def test_values_are_read() -> None:
    options = load(
        partitions="7, 0,2-4",
        startingTransactions='{"0": 5, "2": -2, "10": -1}',
        endingTransactions="latest",
        includeData="FALSE",
        minPartitions="12",
        headers="1, -2,0x57434C4D",
    )
    assert options.headers == frozenset((1, -2, 1464028237))
    assert options.partitions == (0, 2, 3, 4, 7)
    assert options.starting == {0: 5, 2: -2, 10: -1}
    assert (options.include_data, options.min_partitions) == (False, 12)


@pytest.mark.parametrize(
    ("use", "options", "line"),
    [
        (BATCH, {"minPartition": "3"}, "unknown option minPartition; did you mean minPartitions?"),
        (BATCH, {"zookeeper.conectString": "x"}, "unknown option zookeeper.conectString; did you mean zookeeper.connectString?"),
        (BATCH, {"xyzzy": "1"}, "unknown option xyzzy: a batch read takes partitions, startingTransactions, "),
        (BATCH, {"pushFilters": "true"}, "there is no option pushFilters any longer"),
        (BATCH, {"headers": "1,x"}, "option headers = '1,x': 'x' is not a whole number"),
        (BATCH, {"headers": "1,,2"}, "option headers = '1,,2': '' is not a whole number"),
        (BATCH, {"headers": "4294967296"}, "4294967296 is not a signed 32-bit number"),
        (BATCH, {"path": "/x"}, "a log has no path"),
        (BATCH, {"minPartitions": "0"}, "option minPartitions = '0': it must be at least 1"),
        (BATCH, {"minPartitions": "many"}, "option minPartitions = 'many': it is not a whole number"),
        (BATCH, {"includeData": "yes"}, "option includeData = 'yes': it must be true or false"),
        (BATCH, {"partitions": "1,,2"}, "option partitions = '1,,2': it must be partition numbers"),
        (BATCH, {"partitions": "5-3"}, "5-3 is not a span of partitions"),
        (BATCH, {"startingTransactions": "soon"}, "it must be earliest, latest, or JSON like"),
        (BATCH, {"startingTransactions": "[1]"}, "the JSON must be an object"),
        (BATCH, {"startingTransactions": '{"a": 1}'}, "'a' is not a partition number"),
        (BATCH, {"startingTransactions": '{"0": -3}'}, "-3 of partition 0 is not a transaction id"),
        (BATCH, {"startingTransactions": '{"0": true}'}, "true of partition 0 is not a transaction id"),
        (BATCH, {"startingTransactions": '{"0": 0, "00": 4}'}, "partition 0 is named twice"),
        (BATCH, {"startingTransactions": '{"0": 0, "0": 4}'}, "partition 0 is named twice"),
        (BATCH, {"startingTransactions": '{"0": {"1": 2}}'}, "of partition 0 is not a transaction id"),
        (BATCH, {"startingTransactions": "[" * 100_000}, "it must be earliest, latest, or JSON like"),
        (BATCH, {"readTimeoutMs": "9" * 400}, "it must be at most 9223372036854775807"),
        (BATCH, {"partitions": "0-" + "9" * 30}, "is not a span of partitions"),
        (BATCH, {"endingTransactions": "earliest"}, "a read that ends at the beginning has no rows"),
        (BATCH, {"endingTransactions": '{"0": -2}'}, "a read that ends at the beginning has no rows"),
        (BATCH, {"startingTransactions": "latest"}, "a batch read from the end has no rows"),
        (STREAM, {"endingTransactions": "latest"}, "option endingTransactions has no meaning for a streaming read"),
        (BATCH, {"maxBytesPerTrigger": "1"}, "option maxBytesPerTrigger has no meaning for a batch read"),
        (BATCH, {"deserializer": "avro"}, "option deserializer = 'avro': it must be binary or utf8"),
        (BATCH, {"deserializer": "utf8", "includeData": "false"}, "option deserializer needs includeData = true"),
        (BATCH, {"batchBytes": "9999999999"}, "it must be at most 1073741824"),
        (BATCH, {"client.connectTimeout": "soon"}, "client.connectTimeout = 'soon'"),
        (BATCH, {"cluster.root": "relative"}, "cluster.root = 'relative'"),
    ],
)  # fmt: skip
def test_a_mistake_is_one_clear_line(use: str, options: Mapping[str, str], line: str) -> None:
    with pytest.raises(OptionError) as caught:
        ReadOptions.load({**CLUSTER, **options}, use)
    assert line in str(caught.value)
    assert str(caught.value).startswith("waltz: ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("missing", CLUSTER)
def test_the_cluster_must_be_named(missing: str) -> None:
    with pytest.raises(OptionError, match=rf"the key {missing} is required"):
        ReadOptions.load({key: value for key, value in CLUSTER.items() if key != missing}, BATCH)


def test_servers_in_place_of_zookeeper() -> None:
    options = ReadOptions.load({"servers": "a:1,b:2", "client.ssl.enabled": "false"}, BATCH)
    settings = options.client.settings()
    assert [str(server) for server in settings.servers] == ["a:1", "b:2"]
    with pytest.raises(OptionError, match="give servers, or the keys of ZooKeeper, not both"):
        ReadOptions.load({**CLUSTER, "servers": "a:1"}, BATCH)


def test_what_spark_passes_on_of_its_own_is_left_alone() -> None:
    load(STREAM, checkpointLocation="/c", queryName="q")


def test_secrets_are_never_shown() -> None:
    options = load(**{"zookeeper.auth": "me:planted", "client.ssl.keyStore.password": "planted"})
    assert "planted" not in f"{options!r} {options} {options.client!r}"
    assert "'zookeeper.auth': '***'" in repr(options.client)
    copied = pickle.loads(pickle.dumps(options))
    assert copied == options
    assert hash(copied.client) == hash(options.client)
    assert copied.client.settings().zookeeper_auth == "me:planted"


def test_files_that_spark_brought_are_found_where_it_put_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from pyspark import SparkFiles

    monkeypatch.setattr(SparkFiles, "_root_directory", str(tmp_path))
    monkeypatch.setattr(SparkFiles, "_is_running_on_worker", True)
    keys = ClientKeys(
        {
            **CLUSTER,
            "zookeeper.sessionTimeout": "1000",
            "client.ssl.trustStore.location": "sparkfiles:ca.pem",
            "client.ssl.keyStore.location": "/etc/key.pem",
        }
    )
    tls = keys.settings().tls_settings("client.ssl")
    assert (tls.trust_store, tls.key_store) == (str(tmp_path / "ca.pem"), "/etc/key.pem")


def test_a_spark_that_cannot_do_what_an_option_asks_for_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for version, found in {"4.0.1": (4, 0), "4.2.0": (4, 2), "4.3.0.dev1": (4, 3), "5.0": (5, 0)}.items():
        monkeypatch.setattr("pyspark.__version__", version)
        assert spark_is_at_least(found)
        assert not spark_is_at_least((found[0], found[1] + 1))
    monkeypatch.setattr("pyspark.__version__", "4.1.1")
    load(STREAM)
    with pytest.raises(OptionError, match=r"maxBytesPerTrigger needs Spark 4\.2 or newer, this is 4\.1\.1"):
        load(STREAM, maxBytesPerTrigger="10")


KAFKA = [
    ("kafka.bootstrap.servers", "use servers (those of Waltz)"),
    ("subscribe", "partitions"),
    ("subscribePattern", "partitions"),
    ("assign", "partitions"),
    ("startingOffsets", "startingTransactions"),
    ("endingOffsets", "endingTransactions"),
    ("startingTimestamp", "startingTransactions"),
    ("endingOffsetsByTimestamp", "endingTransactions"),
    ("maxOffsetsPerTrigger", "maxTransactionsPerTrigger"),
    ("minOffsetsPerTrigger", "minTransactionsPerTrigger"),
    ("maxTriggerDelay", "maxTriggerDelayMs"),
    ("maxRecordsPerPartition", "maxTransactionsPerPartition"),
    ("includeHeaders", "header"),
    ("kafka.group.id", "no groups"),
    ("kafkaConsumer.pollTimeoutMs", "readTimeoutMs"),
    ("kafka.security.protocol", "client.*"),
]


@pytest.mark.parametrize(("name", "ours"), KAFKA)
@pytest.mark.parametrize("use", [BATCH, STREAM])
def test_an_option_of_the_kafka_source_is_answered_with_ours(use: str, name: str, ours: str) -> None:
    """Spark hands names over in lower case; the answer has them as people write them."""
    with pytest.raises(OptionError) as caught:
        ReadOptions.load({**CLUSTER, name.lower(): "x"}, use)
    assert str(caught.value).startswith("waltz: option ")
    assert "is one of" in str(caught.value)
    assert "Kafka" in str(caught.value)
    assert ours in str(caught.value).split(":", 2)[2]


def test_hints_name_options_that_there_are() -> None:
    """A renamed option would leave its old name in a hint."""
    known = {option.name for option in (*READ_TABLE, *WRITE_TABLE)} | set(ClientSettings.keys())
    for name, ours in KAFKA:
        if ours[0].islower() and " " not in ours and "*" not in ours and ours != "header":
            assert ours in known, name


def test_what_load_can_check_without_knowing_whether_it_is_a_stream() -> None:
    check_at_load({**CLUSTER, "startingTransactions": "latest"})  # a stream
    check_at_load({**CLUSTER, "endingTransactions": "latest"})  # a batch
    with pytest.raises(OptionError, match=r"the key zookeeper\.connectString is required"):
        check_at_load({})
    with pytest.raises(OptionError, match="option readTimeoutMs = 'soon'"):
        check_at_load({**CLUSTER, "readTimeoutMs": "soon", "maxTriggerDelayMs": "5"})
    with pytest.raises(OptionError, match="option endingTransactions has no meaning for a streaming read"):
        check_at_load({**CLUSTER, "maxTriggerDelayMs": "5", "endingTransactions": "latest"})
