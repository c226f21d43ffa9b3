"""Configuration: every key of 0.13.2, our own, and mistakes in one line (safety F1)."""

import logging

import pytest

from waltz_cluster.errors import ConfigError
from waltz_server.settings import ServerSettings

REQUIRED = {
    "zookeeper.connectString": "zk:2181",
    "zookeeper.sessionTimeout": 30000,
    "cluster.root": "/waltz",
    "server.port": 55180,
}

ALL_KEYS_OF_0_13_2: dict[str, object] = {
    **REQUIRED,
    "server.jetty.port": 55181,
    "server.region": "eu",
    "server.optimisticLockTableSize": "30001",
    "server.feedCacheSize": 1000,
    "server.minFetchSize": 10,
    "server.realtimeThreshold": 20,
    "server.transactionDataCacheSize": 2000,
    "server.transactionDataCacheAllocation": "DIRECT",
    "storage.maxBatchSize": 50,
    "storage.initialRetryInterval": 10,
    "storage.maxRetryInterval": 100,
    "storage.checkpointInterval": 12,
    "server.ssl.keyStore.location": "server.pem",
    "server.ssl.keyStore.password": "secret",
    "server.ssl.keyStore.type": "JKS",
    "server.ssl.trustStore.location": "ca.pem",
    "server.ssl.trustStore.password": "secret",
    "server.ssl.trustStore.type": "JKS",
    "server.ssl.keyManager.algorithm": "SunX509",
    "server.ssl.trustManager.algorithm": "SunX509",
    "server.graphite.hostname": "graphite",
    "server.graphite.port": 2004,
    "server.graphite.prefix": "w",
    "server.graphite.reportIntervalMs": 30,
    "server.graphite.useUdp": "true",
}


def test_defaults() -> None:
    settings = ServerSettings.from_mapping(REQUIRED)
    assert settings.jetty_port is None
    assert settings.lock_table_size == 30_000
    assert settings.feed_cache_size_bytes == 67_108_864
    assert settings.transaction_cache_size_bytes == 134_217_728
    assert settings.partition_settings().min_fetch_size == 100
    assert settings.partition_settings().realtime_threshold == 1000
    store = settings.store_settings()
    assert (store.max_batch_size, store.checkpoint_interval) == (100, 250_000)
    assert (store.initial_retry_interval_ms, store.max_retry_interval_ms) == (100, 20_000)
    assert settings.graphite_settings().hostname is None
    assert settings.max_frame_bytes == 64 * 1024 * 1024
    assert settings.max_protocol_version == 5


def test_safety_f1_all_keys_of_0_13_2_are_accepted(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        settings = ServerSettings.from_mapping(ALL_KEYS_OF_0_13_2)
    assert "server.region" in caplog.text
    assert settings.lock_table_size == 30_001
    assert settings.store_settings().checkpoint_interval == 12
    assert settings.client_facing_tls().key_store == "server.pem"


def test_client_server_13_22_graphite_interval_counts_seconds() -> None:
    graphite = ServerSettings.from_mapping(ALL_KEYS_OF_0_13_2).graphite_settings()
    assert graphite.interval_seconds == 30.0
    assert graphite.use_udp is True


def test_client_server_13_21_storage_tls_has_its_own_keys_or_those_of_the_server() -> None:
    assert ServerSettings.from_mapping(ALL_KEYS_OF_0_13_2).storage_facing_tls().trust_store == "ca.pem"
    own = {**ALL_KEYS_OF_0_13_2, "storage.ssl.trustStore.location": "storage-ca.pem"}
    settings = ServerSettings.from_mapping(own)
    assert settings.storage_facing_tls().trust_store == "storage-ca.pem"
    assert settings.storage_facing_tls().prefix == "storage.ssl"
    assert settings.client_facing_tls().trust_store == "ca.pem"


def test_own_keys() -> None:
    settings = ServerSettings.from_mapping(
        {
            **REQUIRED,
            "server.advertised.host": "h",
            "server.advertised.port": 1,
            "server.bind.host": "127.0.0.1",
        }
    )
    assert (settings.advertised_host, settings.advertised_port, settings.bind_host) == ("h", 1, "127.0.0.1")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"server.prot": 1}, "unknown key server.prot; did you mean server.port?"),
        ({"server.port": None}, "the key server.port is required"),
        ({"server.port": 70_000}, "server.port"),
        ({"server.jetty.port": 55180}, "server.port and server.jetty.port must differ"),
        ({"server.minFetchSize": 1000}, "server.minFetchSize must be less than server.realtimeThreshold"),
        ({"server.transactionDataCacheAllocation": "mmap"}, "must be heap or direct"),
        ({"server.bind.host": "all..hosts"}, "server.bind.host = 'all..hosts': this is no host name"),
        ({"server.graphite.hostname": "a" * 64}, "this is no host name"),
        ({"storage.maxBatchSize": "many"}, "storage.maxBatchSize"),
    ],
)
def test_mistakes_are_one_line(change: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        ServerSettings.from_mapping({**REQUIRED, **change}, source="server.yaml")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert caught.value.user_error


def test_allowed_peers_are_names_that_somebody_verifies() -> None:
    trusted = {**REQUIRED, "server.ssl.trustStore.location": "ca.pem"}
    for given in (["orders", "billing"], "orders, billing"):
        settings = ServerSettings.from_mapping({**trusted, "server.ssl.allowedPeers": given})
        assert settings.limits().allowed_peers == ("orders", "billing")
    assert ServerSettings.from_mapping(trusted).limits().allowed_peers is None
    for given, unverified in (("orders", REQUIRED), ("orders", {**trusted, "server.ssl.enabled": False})):
        with pytest.raises(ConfigError, match=r"needs server\.ssl\.trustStore\.location"):
            ServerSettings.from_mapping({**unverified, "server.ssl.allowedPeers": given})
    nobodies: list[object] = [[], "", "orders,", 7]
    for nobody in nobodies:
        with pytest.raises(ConfigError, match=r"server\.ssl\.allowedPeers"):
            ServerSettings.from_mapping({**trusted, "server.ssl.allowedPeers": nobody})


@pytest.mark.parametrize("newest", [0, 3, 6])
def test_no_server_leaves_out_a_version_of_0_13_2(newest: int) -> None:
    with pytest.raises(ConfigError, match=r"server\.maxProtocolVersion"):
        ServerSettings.from_mapping(REQUIRED | {"server.maxProtocolVersion": newest})
