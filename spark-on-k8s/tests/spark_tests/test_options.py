"""Options: each mistake is one clear line, and no secret is ever shown."""

import pickle
from collections.abc import Mapping
from pathlib import Path

import pytest

from waltz_spark.errors import OptionError
from waltz_spark.offsets import EARLIEST, LATEST
from waltz_spark.options import BATCH, STREAM, ClientKeys, ReadOptions
from waltz_spark.stream import WaltzStreamReader, _has_admission_control

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
        {"ZOOKEEPER.connectstring": "zk:2181", "cluster.root": "/l", "maxtransactionspertrigger": "5"}, STREAM
    )
    assert options.max_transactions_per_trigger == 5
    assert options.client.settings().zookeeper_connect_string == "zk:2181"


def test_values_are_read() -> None:
    options = load(
        partitions="7, 0,2-4",
        startingTransactions='{"0": 5, "2": -2, "10": -1}',
        endingTransactions="latest",
        includeData="FALSE",
        minPartitions="12",
    )
    assert options.partitions == (0, 2, 3, 4, 7)
    assert options.starting == {0: 5, 2: -2, 10: -1}
    assert (options.include_data, options.min_partitions) == (False, 12)


@pytest.mark.parametrize(
    ("use", "options", "line"),
    [
        (BATCH, {"minPartition": "3"}, "unknown option minPartition; did you mean minPartitions?"),
        (BATCH, {"zookeeper.conectString": "x"}, "unknown option zookeeper.conectString; did you mean zookeeper.connectString?"),
        (BATCH, {"startingOffsets": "earliest"}, "unknown option startingOffsets"),
        (BATCH, {"xyzzy": "1"}, "unknown option xyzzy"),
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


def test_limits_need_a_spark_that_passes_them(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [_has_admission_control(v) for v in ("4.0.1", "4.1.0", "4.2.0", "4.3.0.dev1", "5.0")] == [
        False,
        False,
        True,
        True,
        True,
    ]
    monkeypatch.setattr("pyspark.__version__", "4.1.1")
    WaltzStreamReader(load(STREAM))
    with pytest.raises(OptionError, match=r"maxBytesPerTrigger needs Spark 4\.2 or newer, this is 4\.1\.1"):
        WaltzStreamReader(load(STREAM, maxBytesPerTrigger="10"))
