"""Configuration keys of the roles, made from the settings classes of the services by
`operator/tests/operator_tests/api/test_config_keys.py` (WALTZ_WRITE_DOCS=1 writes it again)."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple


class Kind(StrEnum):
    """What a value must be; any: the key has no effect."""

    TEXT = "text"
    INTEGER = "integer"
    NUMBER = "number"
    BOOLEAN = "boolean"
    ANY = "any"


class Key(NamedTuple):
    """One key. `above`: the minimum itself is not allowed. `minimum` of a text: its length. `words`: the
    values of a text, if they are few. `host`: a text that is a host."""

    kind: Kind
    minimum: float | None = None
    maximum: float | None = None
    above: bool = False
    words: tuple[str, ...] = ()
    host: bool = False


KEYS: Mapping[str, Mapping[str, Key]] = {
    "storage": {
        "zookeeper.connectString": Key(Kind.TEXT, 1),
        "zookeeper.sessionTimeout": Key(Kind.INTEGER, 0, None, True),
        "zookeeper.connectTimeout": Key(Kind.INTEGER, 0, None, True),
        "cluster.root": Key(Kind.TEXT),
        "zookeeper.auth.scheme": Key(Kind.TEXT),
        "zookeeper.auth": Key(Kind.TEXT),
        "zookeeper.auth.file": Key(Kind.TEXT),
        "zookeeper.acl": Key(Kind.TEXT),
        "storage.port": Key(Kind.INTEGER, 0, 65535, True),
        "storage.admin.port": Key(Kind.INTEGER, 0, 65535, True),
        "storage.jetty.port": Key(Kind.INTEGER, 0, 65535, True),
        "storage.directory": Key(Kind.TEXT, 1),
        "storage.segment.size.threshold": Key(Kind.INTEGER, 0, None, True),
        "storage.segment.cache.capacity": Key(Kind.INTEGER, 0),
        "storage.bind.host": Key(Kind.TEXT, host=True),
        "storage.disk.threads": Key(Kind.INTEGER, 0, 256, True),
        "storage.disk.inline": Key(Kind.BOOLEAN),
        "storage.journal.enabled": Key(Kind.BOOLEAN),
        "storage.journal.directory": Key(Kind.TEXT, 1),
        "storage.journal.files": Key(Kind.INTEGER, 3, 64),
        "storage.journal.fileBytes": Key(Kind.INTEGER, 1048576, 1073741824),
        "storage.disk.reserveBytes": Key(Kind.INTEGER, 0),
        "storage.maxFrameBytes": Key(Kind.INTEGER, 1024),
        "storage.maxProtocolVersion": Key(Kind.INTEGER, 0, 1),
        "storage.maxConnections": Key(Kind.INTEGER, 1),
        "storage.maxHandshakes": Key(Kind.INTEGER, 1),
        "storage.receiveBytes": Key(Kind.INTEGER, 1048576),
        "storage.ssl.allowedPeers": Key(Kind.TEXT),
        "storage.admin.ssl.allowedPeers": Key(Kind.TEXT),
        "storage.queue.maxBytes": Key(Kind.INTEGER, 1024),
        "storage.queue.totalBytes": Key(Kind.INTEGER, 1048576),
        "storage.log.level": Key(
            Kind.TEXT, words=("DEBUG", "INFO", "WARNING", "WARN", "ERROR", "CRITICAL", "FATAL", "NOTSET")
        ),
        "storage.log.json": Key(Kind.BOOLEAN),
        "storage.graphite.hostname": Key(Kind.TEXT, host=True),
        "storage.graphite.port": Key(Kind.INTEGER, 0, 65535, True),
        "storage.graphite.prefix": Key(Kind.TEXT),
        "storage.graphite.reportIntervalMs": Key(Kind.NUMBER, 0, None, True),
        "storage.graphite.useUdp": Key(Kind.BOOLEAN),
        "storage.ssl.enabled": Key(Kind.ANY),
        "storage.ssl.allowUnverified": Key(Kind.ANY),
        "storage.ssl.verifyHostName": Key(Kind.ANY),
        "storage.ssl.keyStore.location": Key(Kind.ANY),
        "storage.ssl.keyStore.password": Key(Kind.ANY),
        "storage.ssl.keyStore.type": Key(Kind.ANY),
        "storage.ssl.keyStore.keyFile": Key(Kind.ANY),
        "storage.ssl.trustStore.location": Key(Kind.ANY),
        "storage.ssl.trustStore.password": Key(Kind.ANY),
        "storage.ssl.trustStore.type": Key(Kind.ANY),
        "storage.ssl.keyManager.algorithm": Key(Kind.ANY),
        "storage.ssl.trustManager.algorithm": Key(Kind.ANY),
        "zookeeper.ssl.enabled": Key(Kind.ANY),
        "zookeeper.ssl.allowUnverified": Key(Kind.ANY),
        "zookeeper.ssl.verifyHostName": Key(Kind.ANY),
        "zookeeper.ssl.keyStore.location": Key(Kind.ANY),
        "zookeeper.ssl.keyStore.password": Key(Kind.ANY),
        "zookeeper.ssl.keyStore.type": Key(Kind.ANY),
        "zookeeper.ssl.keyStore.keyFile": Key(Kind.ANY),
        "zookeeper.ssl.trustStore.location": Key(Kind.ANY),
        "zookeeper.ssl.trustStore.password": Key(Kind.ANY),
        "zookeeper.ssl.trustStore.type": Key(Kind.ANY),
        "zookeeper.ssl.keyManager.algorithm": Key(Kind.ANY),
        "zookeeper.ssl.trustManager.algorithm": Key(Kind.ANY),
    },
    "server": {
        "zookeeper.connectString": Key(Kind.TEXT, 1),
        "zookeeper.sessionTimeout": Key(Kind.INTEGER, 0, None, True),
        "zookeeper.connectTimeout": Key(Kind.INTEGER, 0, None, True),
        "cluster.root": Key(Kind.TEXT),
        "zookeeper.auth.scheme": Key(Kind.TEXT),
        "zookeeper.auth": Key(Kind.TEXT),
        "zookeeper.auth.file": Key(Kind.TEXT),
        "zookeeper.acl": Key(Kind.TEXT),
        "server.port": Key(Kind.INTEGER, 1, 65535),
        "server.jetty.port": Key(Kind.INTEGER, 1, 65535),
        "server.bind.host": Key(Kind.TEXT, host=True),
        "server.advertised.host": Key(Kind.TEXT, 1),
        "server.advertised.port": Key(Kind.INTEGER, 1, 65535),
        "server.optimisticLockTableSize": Key(Kind.INTEGER, 1),
        "server.feedCacheSize": Key(Kind.INTEGER, 0),
        "server.minFetchSize": Key(Kind.INTEGER, 1),
        "server.realtimeThreshold": Key(Kind.INTEGER, 1),
        "server.transactionDataCacheSize": Key(Kind.INTEGER, 0),
        "server.transactionDataCacheAllocation": Key(Kind.TEXT, words=("HEAP", "DIRECT")),
        "server.maxFrameBytes": Key(Kind.INTEGER, 1024),
        "server.maxProtocolVersion": Key(Kind.INTEGER, 4, 5),
        "server.feedCompression": Key(Kind.TEXT, words=("none", "zstd")),
        "server.maxConnections": Key(Kind.INTEGER, 1),
        "server.maxHandshakes": Key(Kind.INTEGER, 1),
        "server.receiveBytes": Key(Kind.INTEGER, 1048576),
        "server.ssl.allowedPeers": Key(Kind.TEXT),
        "server.appendQueueBytes": Key(Kind.INTEGER, 1),
        "server.appendQueueCount": Key(Kind.INTEGER, 1),
        "server.appendQueueTotalBytes": Key(Kind.INTEGER, 1),
        "server.maxLocksPerAppend": Key(Kind.INTEGER, 1),
        "server.peerWatch.enabled": Key(Kind.BOOLEAN),
        "server.peerTimeout": Key(Kind.INTEGER, 200),
        "server.repeatWindow": Key(Kind.INTEGER, 1),
        "storage.maxProtocolVersion": Key(Kind.INTEGER, 0, 1),
        "storage.maxBatchSize": Key(Kind.INTEGER, 1),
        "storage.initialRetryInterval": Key(Kind.INTEGER, 1),
        "storage.maxRetryInterval": Key(Kind.INTEGER, 1),
        "storage.checkpointInterval": Key(Kind.INTEGER, 1),
        "storage.idleCheckInterval": Key(Kind.INTEGER, 100),
        "server.graphite.hostname": Key(Kind.TEXT, host=True),
        "server.graphite.port": Key(Kind.INTEGER, 1, 65535),
        "server.graphite.prefix": Key(Kind.TEXT),
        "server.graphite.reportIntervalMs": Key(Kind.INTEGER, 1),
        "server.graphite.useUdp": Key(Kind.BOOLEAN),
        "server.log.level": Key(
            Kind.TEXT, words=("DEBUG", "INFO", "WARNING", "WARN", "ERROR", "CRITICAL", "FATAL", "NOTSET")
        ),
        "server.log.json": Key(Kind.BOOLEAN),
        "server.ssl.enabled": Key(Kind.ANY),
        "server.ssl.allowUnverified": Key(Kind.ANY),
        "server.ssl.verifyHostName": Key(Kind.ANY),
        "server.ssl.keyStore.location": Key(Kind.ANY),
        "server.ssl.keyStore.password": Key(Kind.ANY),
        "server.ssl.keyStore.type": Key(Kind.ANY),
        "server.ssl.keyStore.keyFile": Key(Kind.ANY),
        "server.ssl.trustStore.location": Key(Kind.ANY),
        "server.ssl.trustStore.password": Key(Kind.ANY),
        "server.ssl.trustStore.type": Key(Kind.ANY),
        "server.ssl.keyManager.algorithm": Key(Kind.ANY),
        "server.ssl.trustManager.algorithm": Key(Kind.ANY),
        "storage.ssl.enabled": Key(Kind.ANY),
        "storage.ssl.allowUnverified": Key(Kind.ANY),
        "storage.ssl.verifyHostName": Key(Kind.ANY),
        "storage.ssl.keyStore.location": Key(Kind.ANY),
        "storage.ssl.keyStore.password": Key(Kind.ANY),
        "storage.ssl.keyStore.type": Key(Kind.ANY),
        "storage.ssl.keyStore.keyFile": Key(Kind.ANY),
        "storage.ssl.trustStore.location": Key(Kind.ANY),
        "storage.ssl.trustStore.password": Key(Kind.ANY),
        "storage.ssl.trustStore.type": Key(Kind.ANY),
        "storage.ssl.keyManager.algorithm": Key(Kind.ANY),
        "storage.ssl.trustManager.algorithm": Key(Kind.ANY),
        "zookeeper.ssl.enabled": Key(Kind.ANY),
        "zookeeper.ssl.allowUnverified": Key(Kind.ANY),
        "zookeeper.ssl.verifyHostName": Key(Kind.ANY),
        "zookeeper.ssl.keyStore.location": Key(Kind.ANY),
        "zookeeper.ssl.keyStore.password": Key(Kind.ANY),
        "zookeeper.ssl.keyStore.type": Key(Kind.ANY),
        "zookeeper.ssl.keyStore.keyFile": Key(Kind.ANY),
        "zookeeper.ssl.trustStore.location": Key(Kind.ANY),
        "zookeeper.ssl.trustStore.password": Key(Kind.ANY),
        "zookeeper.ssl.trustStore.type": Key(Kind.ANY),
        "zookeeper.ssl.keyManager.algorithm": Key(Kind.ANY),
        "zookeeper.ssl.trustManager.algorithm": Key(Kind.ANY),
        "server.region": Key(Kind.ANY),
    },
}
