"""Each alert once as it fires, and what it looks like when all is well.

A series is written as Prometheus has it: labels of the metric, and those that the scrape configuration adds.
`_x10` repeats a value for ten minutes more (the steps are minutes), `+60x10` lets it grow.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

_CLUSTER = {"namespace": "demo", "app_kubernetes_io_instance": "ledger"}
_OBJECT = {"namespace": "demo", "name": "ledger"}
DAY = 86_400


class Series(NamedTuple):
    """One series. `more`: labels besides those of its target."""

    metric: str
    target: dict[str, str]
    values: str
    more: Mapping[str, str] = MappingProxyType({})

    @property
    def labels(self) -> dict[str, str]:
        return {**self.target, **self.more}

    @property
    def text(self) -> str:
        return self.metric + "{" + ",".join(f'{key}="{value}"' for key, value in self.labels.items()) + "}"


class Case(NamedTuple):
    """At `minutes`, `series` make `alert` fire with `labels` and `summary`; `well`: with these it does
    not."""

    alert: str
    minutes: int
    series: tuple[Series, ...]
    labels: dict[str, str]
    summary: str
    well: tuple[Series, ...]


def _pod(name: str) -> dict[str, str]:
    component = "server" if "server" in name else "storage"
    return _CLUSTER | {"pod": name, "app_kubernetes_io_component": component}


def _server(metric: str, values: str, number: int = 0, **more: str) -> Series:
    return Series(f"waltz_server_{metric}", _pod(f"ledger-server-{number}"), values, more)


def _node(metric: str, values: str, number: int = 0, **more: str) -> Series:
    return Series(f"waltz_storage_{metric}", _pod(f"ledger-storage-{number}"), values, more)


def _operator(metric: str, values: str, **more: str) -> Series:
    return Series(f"waltz_operator_{metric}", _OBJECT, values, more)


CASES = (
    Case(
        "WaltzPartitionUnavailable", 2,
        (_server("healthy", "0x9", partition="3"), _server("healthy", "1x9", partition="4")),
        _CLUSTER | {"partition": "3"},
        "Partition 3 of demo/ledger takes no writes.",
        # a server that was left behind does not count while another one serves the partition
        (_server("healthy", "0x9", partition="3"), _server("healthy", "1x9", 1, partition="3")),
    ),
    Case(
        "WaltzPartitionUnowned", 2,
        (_server("num_partitions", "2x9"), _server("healthy", "1x9", partition="0")),
        _CLUSTER,
        "1 partitions of demo/ledger have no server.",
        (_server("num_partitions", "1x9"), _node("num_partitions", "1x9"), _server("healthy", "1x9", partition="0")),
    ),
    Case(  # no server is left that could say how many partitions there are
        "WaltzPartitionUnowned", 2,
        (_node("num_partitions", "2x9"), _node("num_partitions", "2x9", 1)),
        _CLUSTER,
        "2 partitions of demo/ledger have no server.",
        (_node("num_partitions", "1x9"), _server("healthy", "0x9", partition="0")),
    ),
    Case(
        "WaltzNoQuorum", 4,
        (_operator("partitions", "8x9"), _operator("partitions_with_quorum", "7x9")),
        _OBJECT,
        "1 partitions of demo/ledger have no quorum of caught-up copies.",
        (_operator("partitions", "8x9"), _operator("partitions_with_quorum", "8x9")),
    ),
    Case(
        "WaltzReplicaBehind", 16,
        (_operator("replicas", "24x20"), _operator("replicas_caught_up", "22x20")),
        _OBJECT,
        "2 copies of demo/ledger are not caught up.",
        (_operator("replicas", "24x20"), _operator("replicas_caught_up", "24x20")),
    ),
    Case(  # of a partition that has just moved, the server that was left behind does not count twice
        "WaltzReplicaNotVoting", 16,
        (
            _server("replicas_not_voting", "1x20", partition="3"), _server("replicas_not_voting", "1x20", 1, partition="3"),
            _server("replicas_not_voting", "1x20", 1, partition="4"), _server("replicas_not_voting", "0x20", partition="5"),
        ),
        _CLUSTER,
        "2 copies of demo/ledger do not vote.",
        (_server("replicas_not_voting", "0x20", partition="3"), _server("replicas_not_voting", "0x20", 1, partition="4")),
    ),
    Case(
        "WaltzReplicaLagging", 16,
        (_server("high_water_mark", "300000x20", partition="3"), _node("max_transaction_id", "100x20", partition="3")),
        _pod("ledger-storage-0") | {"partition": "3"},
        "ledger-storage-0 is 299900 transactions behind in partition 3.",
        (_server("high_water_mark", "300000x20", partition="3"), _node("max_transaction_id", "299990x20", partition="3")),
    ),
    Case(
        "WaltzStoragePartitionOutOfService", 2,
        (_node("troubled_partitions", "1x9"),),
        _pod("ledger-storage-0"),
        "ledger-storage-0 has taken 1 partitions out of service.",
        (_node("troubled_partitions", "0x9"),),
    ),
    Case(
        "WaltzNodeUnreachable", 6,
        (_operator("unreachable", "2x9"),),
        _OBJECT,
        "2 storage nodes or servers of demo/ledger give no complete answer.",
        (_operator("unreachable", "0x9"),),
    ),
    Case(
        "WaltzZooKeeperServerDown", 11,
        (_operator("zookeeper_servers_down", "1x20"),),
        _OBJECT,
        "ZooKeeper servers of demo/ledger that do not serve: 1.",
        (_operator("zookeeper_servers_down", "0x20"),),
    ),
    Case(
        "WaltzProcessDown", 6,
        (Series("up", _pod("ledger-storage-1"), "0x9"),),
        _pod("ledger-storage-1"),
        "ledger-storage-1 of demo/ledger does not answer Prometheus.",
        (Series("up", _pod("ledger-storage-1"), "1x9"), Series("up", {"job": "of somebody else"}, "0x9")),
    ),
    Case(
        "WaltzAppendsDropped", 12,
        (_server("append_dropped_queue_full_total", "0+60x15", partition="3"),),
        {"namespace": "demo", "pod": "ledger-server-0", "partition": "3"},
        "ledger-server-0 drops appends of partition 3: its queue is full.",
        (_server("append_dropped_queue_full_total", "7x15", partition="3"),),
    ),
    Case(
        "WaltzDiskFullSoon", 61,
        (_node("disk_time_to_full_seconds", f"{2 * DAY}x70"),),
        _pod("ledger-storage-0"),
        "The disk of ledger-storage-0 is full in 2d 0h 0m 0s.",
        (_node("disk_time_to_full_seconds", f"{8 * DAY}x70"),),
    ),
    Case(
        "WaltzDiskAlmostFull", 11,
        (_node("disk_free_bytes", "5x20"), _node("disk_size_bytes", "100x20")),
        _pod("ledger-storage-0"),
        "Less than a tenth of the disk of ledger-storage-0 is free.",
        (_node("disk_free_bytes", "11x20"), _node("disk_size_bytes", "100x20")),
    ),
    Case(
        "WaltzDiskFull", 2,
        (_node("disk_full", "1x9"),),
        _pod("ledger-storage-0"),
        "The disk of ledger-storage-0 is full.",
        (_node("disk_full", "0x9"),),
    ),
    Case(
        "WaltzCertificateExpiry", 62,
        (_operator("certificate_expiry_timestamp_seconds", f"{DAY + 3720}x70", role="server"),),
        _OBJECT | {"role": "server"},
        "The certificate of server of demo/ledger ends in 1d 0h 0m 0s.",
        (_operator("certificate_expiry_timestamp_seconds", f"{9 * DAY}x70", role="server"),),
    ),
    Case(  # the one shown to clients is renewed, the one shown to storage nodes is not
        "WaltzCertificateInUseExpiry", 62,
        (
            _server("tls_certificate_expiry_timestamp_seconds", f"{90 * DAY}x70"),
            _server("storage_tls_certificate_expiry_timestamp_seconds", f"{DAY + 3720}x70"),
        ),
        _CLUSTER | {"pod": "ledger-server-0"},
        "A certificate that ledger-server-0 uses ends in 1d 0h 0m 0s.",
        (
            _server("tls_certificate_expiry_timestamp_seconds", f"{90 * DAY}x70"),
            _server("storage_tls_certificate_expiry_timestamp_seconds", f"{90 * DAY}x70"),
        ),
    ),
    Case(
        "WaltzCertificateInUseExpiry", 62,
        (_node("tls_certificate_expiry_timestamp_seconds", f"{DAY + 3720}x70"),),
        _CLUSTER | {"pod": "ledger-storage-0"},
        "A certificate that ledger-storage-0 uses ends in 1d 0h 0m 0s.",
        (_node("tls_certificate_expiry_timestamp_seconds", f"{3 * DAY}x70"),),
    ),
    Case(
        "WaltzOperatorDown", 6,
        (Series("waltz_operator_holding_lease", {}, "0x9"),),
        {},
        "No Waltz operator holds the Lease.",
        (Series("waltz_operator_holding_lease", {}, "1x9"),),
    ),
    Case(
        "WaltzOperatorStuck", 6,
        (_operator("reconcile_age_seconds", "1000x9"),),
        _OBJECT,
        "Nobody has looked at demo/ledger for 16m 40s.",
        (_operator("reconcile_age_seconds", "30x9"),),
    ),
    Case(
        "WaltzOperatorErrors", 40,
        (_operator("reconcile_errors_total", "0+1x60", reason="conflict"),),
        _OBJECT | {"reason": "conflict"},
        "Passes over demo/ledger end with conflict again and again.",
        (_operator("reconcile_errors_total", "9x60", reason="conflict"),),
    ),
    Case(
        "WaltzOperationBlocked", 80,
        (_operator("gate_blocked_seconds_total", "0+60x90", reason="NotCaughtUp"),),
        _OBJECT | {"reason": "NotCaughtUp"},
        "A step on demo/ledger has been waiting for most of an hour: NotCaughtUp.",
        (_operator("gate_blocked_seconds_total", "600x90", reason="NotCaughtUp"),),
    ),
)  # fmt: skip
