"""Options of Spark's Kafka source and sink, for those who give one here out of habit: what it is called here,
or why there is none. Pure."""

from __future__ import annotations

_READS = {
    "kafka.bootstrap.servers": "use servers (those of Waltz), or zookeeper.connectString and cluster.root",
    "subscribe": "use partitions, or leave it out to read all of them (a log is one topic)",
    "subscribePattern": "use partitions, or leave it out to read all of them (a log is one topic)",
    "assign": "use partitions, like 0,2,5-7",
    "startingOffsets": "use startingTransactions",
    "endingOffsets": "use endingTransactions",
    "startingTimestamp": "use startingTransactions (a record of a log carries no time)",
    "endingTimestamp": "use endingTransactions (a record of a log carries no time)",
    "startingOffsetsByTimestamp": "use startingTransactions (a record of a log carries no time)",
    "endingOffsetsByTimestamp": "use endingTransactions (a record of a log carries no time)",
    "startingOffsetsByTimestampStrategy": "remove it (a record of a log carries no time)",
    "maxOffsetsPerTrigger": "use maxTransactionsPerTrigger",
    "minOffsetsPerTrigger": "use minTransactionsPerTrigger",
    "maxTriggerDelay": "use maxTriggerDelayMs",
    "maxRecordsPerPartition": "use maxTransactionsPerPartition",
    "includeHeaders": "remove it (the column header is always there)",
    "groupIdPrefix": "remove it (there are no groups of readers)",
    "kafka.group.id": "remove it (there are no groups of readers)",
    "kafkaConsumer.pollTimeoutMs": "use readTimeoutMs",
    "fetchOffset.numRetries": "use readTimeoutMs",
    "fetchOffset.retryIntervalMs": "use readTimeoutMs",
}
_WRITES = {
    "kafka.bootstrap.servers": "use servers (those of Waltz), or zookeeper.connectString and cluster.root",
    "topic": "remove it (a log is one topic; the column partition chooses the partition)",
    "includeHeaders": "remove it (the column header is written)",
}


def hint(name: str, *, writes: bool) -> str | None:
    """A sentence when the option is one of the Kafka source (of the sink with `writes`); None otherwise."""
    known = {spelled.lower(): (spelled, meant) for spelled, meant in (_WRITES if writes else _READS).items()}
    if name.lower() in known:
        spelled, meant = known[name.lower()]
        return f"option {spelled} is one of Spark's Kafka {_part(writes)}: {meant}"
    if name.lower().startswith("kafka."):
        return f"option {name} is one of Kafka's client: use a key of ours, zookeeper.* or client.*, or remove it"
    return None


def _part(writes: bool) -> str:
    return "sink" if writes else "source"
