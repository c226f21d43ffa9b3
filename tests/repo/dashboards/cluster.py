"""Two dashboards of a cluster: the whole, and its partitions."""

from __future__ import annotations

from tests.repo.dashboards.model import RATE, Dashboard, Panel, Query, Row, Variable

CLUSTER = 'namespace="$namespace", app_kubernetes_io_instance="$cluster"'
PARTITION = f'{CLUSTER}, partition=~"$partition"'

VARIABLES = (
    Variable("namespace", "Namespace", "label_values(waltz_build_info, namespace)"),
    Variable(
        "cluster",
        "Cluster",
        'label_values(waltz_build_info{namespace="$namespace"}, app_kubernetes_io_instance)',
    ),
)


def per_second(metric: str, selector: str = CLUSTER) -> str:
    return f"rate({metric}{{{selector}}}[{RATE}])"


def quantile(q: float, metric: str, selector: str = CLUSTER, by: str = "") -> str:
    labels = f"le, {by}" if by else "le"
    return f"histogram_quantile({q}, sum by ({labels}) ({per_second(f'{metric}_bucket', selector)}))"


def mean(metric: str, selector: str, by: str) -> str:
    total, count = (per_second(f"{metric}_{part}", selector) for part in ("sum", "count"))
    return f"sum by ({by}) ({total}) / sum by ({by}) ({count})"


_COUNT_OF_PARTITIONS = (
    f"max(waltz_server_num_partitions{{{CLUSTER}}} or waltz_storage_num_partitions{{{CLUSTER}}})"
)


def wrong(title: str, says: str, expr: str, *alerts: str, width: int = 4) -> Panel:
    """A number that is 0 when all is well."""
    return Panel(title, says, (Query(expr),), kind="stat", width=width, height=4, red=1, alerts=alerts)


WELL = Row(
    "Is it well?",
    (
        wrong(
            "Partitions without writes",
            "Their server has no healthy store session.",
            f"count(max by (partition) (waltz_server_healthy{{{CLUSTER}}}) == 0) or vector(0)",
            "WaltzPartitionUnavailable",
            width=3,
        ),
        wrong(
            "Partitions without a server",
            "No server reports them.",
            f"{_COUNT_OF_PARTITIONS} - (count(count by (partition) (waltz_server_healthy{{{CLUSTER}}})) or vector(0))",
            "WaltzPartitionUnowned",
            width=3,
        ),
        wrong(
            "Silent processes",
            "Servers and storage nodes that do not answer Prometheus.",
            f'count(up{{{CLUSTER}, app_kubernetes_io_component=~"server|storage"}} == 0) or vector(0)',
            "WaltzProcessDown",
            "WaltzNodeUnreachable",
            width=3,
        ),
        wrong(
            "Copies that do not vote",
            "Away or silent, refused, being filled, or behind: the servers do not count on them.",
            f"sum(max by (partition) (waltz_server_replicas_not_voting{{{CLUSTER}}}))",
            "WaltzReplicaNotVoting",
            width=3,
        ),
        wrong(
            "Copies out of service",
            "Damage, or a failed sync.",
            f"sum(waltz_storage_troubled_partitions{{{CLUSTER}}})",
            "WaltzStoragePartitionOutOfService",
            width=3,
        ),
        wrong(
            "Full disks",
            "Nodes that refuse appends for lack of space.",
            f"sum(waltz_storage_disk_full{{{CLUSTER}}})",
            "WaltzDiskFull",
            width=3,
        ),
        Panel(
            "First certificate ends in",
            "Of those that processes show now; none where they have no certificate files.",
            (
                Query(
                    f"min(waltz_server_tls_certificate_expiry_timestamp_seconds{{{CLUSTER}}}"
                    f" or waltz_storage_tls_certificate_expiry_timestamp_seconds{{{CLUSTER}}}) - time()"
                ),
                Query(
                    f"min(waltz_server_storage_tls_certificate_expiry_timestamp_seconds{{{CLUSTER}}}) - time()"
                ),
            ),
            unit="s",
            kind="stat",
            width=6,
            height=4,
            sparse=True,
            alerts=("WaltzCertificateInUseExpiry",),
        ),
        Panel(
            "Alerts that fire",
            "Of this namespace and of the operator; empty is good.",
            (Query('ALERTS{alertname=~"Waltz.*", alertstate="firing", namespace=~"$namespace|"}'),),
            kind="table",
            width=24,
            height=5,
            sparse=True,
        ),
    ),
)

WORK = Row(
    "Work and errors",
    (
        Panel(
            "Appends committed",
            "By server.",
            (Query(f"sum by (pod) ({per_second('waltz_server_successful_append_total')})", "{{pod}}"),),
            unit="ops",
        ),
        Panel(
            "Bytes appended",
            "As they arrive, by server.",
            (Query(f"sum by (pod) ({per_second('waltz_server_appends_received_bytes_total')})", "{{pod}}"),),
            unit="Bps",
        ),
        Panel(
            "Appends not committed",
            "Conflicts are decided by locks and are the application's matter; a full queue is ours.",
            (
                Query(f"sum({per_second('waltz_server_rejected_append_total')})", "lock conflict"),
                Query(f"sum({per_second('waltz_server_append_dropped_queue_full_total')})", "queue full"),
                Query(
                    f"sum({per_second('waltz_server_append_dropped_generation_total')})", "other generation"
                ),
                Query(f"sum({per_second('waltz_server_append_dropped_fenced_total')})", "older connection"),
                Query(
                    f"sum({per_second('waltz_server_append_refused_view_ahead_total')})",
                    "view beyond the log",
                ),
                Query(f"sum({per_second('waltz_server_dropped_not_mounted_total')})", "not mounted"),
                Query(f"sum({per_second('waltz_server_read_failures_total')})", "failed reads"),
            ),
            unit="ops",
            alerts=("WaltzAppendsDropped",),
        ),
    ),
)

TIME = Row(
    "Where the time goes",
    (
        Panel(
            "Append in the server",
            "From its arrival to its commit, all partitions.",
            tuple(
                Query(quantile(q, "waltz_server_response_latency_seconds"), f"p{q * 100:g}")
                for q in (0.5, 0.99)
            ),
            unit="s",
        ),
        Panel(
            "Mean of each stage",
            "queue: locks and admission; storage: a majority has it; commit; feed: written to those who follow.",
            (Query(mean("waltz_server_append_stage_seconds", CLUSTER, "stage"), "{{stage}}"),),
            unit="s",
        ),
        Panel(
            "99th percentile of each stage",
            "What is long here is what to look at: queue → locks or load, storage → the disks below.",
            (Query(quantile(0.99, "waltz_server_append_stage_seconds", by="stage"), "{{stage}}"),),
            unit="s",
        ),
        Panel(
            "Request in each storage node",
            "99th percentile from the arrival of an append request to the end of its sync.",
            (Query(quantile(0.99, "waltz_storage_append_latency_seconds", by="pod"), "{{pod}}"),),
            unit="s",
        ),
        Panel(
            "Wait in the clients",
            "99th percentile from the call of append to its sending; of all clients that Prometheus reads.",
            (
                Query(
                    f"histogram_quantile(0.99, sum by (le) (rate(waltz_client_append_wait_seconds_bucket[{RATE}])))",
                    "wait",
                ),
            ),
            unit="s",
            sparse=True,
        ),
        Panel(
            "Append in the clients",
            "99th percentile from its sending to its outcome; of all clients that Prometheus reads.",
            (
                Query(
                    f"histogram_quantile(0.99, sum by (le, outcome) (rate(waltz_client_append_seconds_bucket[{RATE}])))",
                    "{{outcome}}",
                ),
            ),
            unit="s",
            sparse=True,
        ),
    ),
)

FULL = Row(
    "How full it is",
    (
        Panel(
            "Appends that wait",
            "In queues and lines of locks, by server.",
            (Query(f"sum by (pod) (waltz_server_append_queue_size{{{CLUSTER}}})", "{{pod}}"),),
            alerts=("WaltzAppendsDropped",),
        ),
        Panel(
            "Appends on their way to the disks",
            "Sent to storage nodes, no majority yet, by server.",
            (Query(f"sum by (pod) (waltz_server_pending_append{{{CLUSTER}}})", "{{pod}}"),),
        ),
        Panel(
            "Requests that wait for a disk",
            "By storage node.",
            (Query(f"sum by (pod) (waltz_storage_process_queue_size{{{CLUSTER}}})", "{{pod}}"),),
        ),
        Panel(
            "Free space",
            "Share of each disk; appends are refused below the reserve.",
            (
                Query(
                    f"waltz_storage_disk_free_bytes{{{CLUSTER}}} / waltz_storage_disk_size_bytes{{{CLUSTER}}}",
                    "{{pod}}",
                ),
            ),
            unit="percentunit",
            alerts=("WaltzDiskAlmostFull", "WaltzDiskFullSoon"),
        ),
        Panel(
            "Time until a disk is full",
            "At its growth; no line: it does not grow.",
            (Query(f"waltz_storage_disk_time_to_full_seconds{{{CLUSTER}}}", "{{pod}}"),),
            unit="s",
            alerts=("WaltzDiskFullSoon",),
            sparse=True,
        ),
        Panel(
            "Farthest behind",
            "Transactions that a copy lacks, the ten worst.",
            (
                Query(
                    f"topk(10, clamp_min(max by (partition) (waltz_server_high_water_mark{{{CLUSTER}}})"
                    f" - on (partition) group_right () waltz_storage_max_transaction_id{{{CLUSTER}}}, 0))",
                    "{{pod}} partition {{partition}}",
                ),
            ),
            alerts=("WaltzReplicaBehind", "WaltzReplicaLagging"),
        ),
        Panel(
            "Processor",
            "Cores in use; one loop takes at most one, a storage node's disk threads more.",
            (Query(f"rate(process_cpu_seconds_total{{{CLUSTER}}}[{RATE}])", "{{pod}}"),),
        ),
        Panel(
            "Memory",
            "Resident, by process.",
            (Query(f"process_resident_memory_bytes{{{CLUSTER}}}", "{{pod}}"),),
            unit="bytes",
        ),
        Panel(
            "Clients",
            "Connections and feeds.",
            (
                Query(f"sum(waltz_server_connections{{{CLUSTER}}})", "connections"),
                Query(f"sum(waltz_server_feeds{{{CLUSTER}}})", "feeds"),
            ),
        ),
    ),
)

CLUSTER_DASHBOARD = Dashboard(
    "cluster", "Waltz: cluster", "What is wrong first, then work, time and space of one cluster.", VARIABLES,
    (WELL, WORK, TIME, FULL),
)  # fmt: skip

PARTITION_DASHBOARD = Dashboard(
    "partition",
    "Waltz: partitions",
    "Some partitions of a cluster: who serves them, their copies, their load.",
    (
        *VARIABLES,
        Variable(
            "partition",
            "Partition",
            f"label_values(waltz_storage_max_transaction_id{{{CLUSTER}}}, partition)",
            several=True,
        ),
    ),
    (
        Row(
            "Are they well?",
            (
                Panel(
                    "Takes writes",
                    "1 while its server has a healthy store session; no line: no server has it.",
                    (
                        Query(
                            f"max by (partition, pod) (waltz_server_healthy{{{PARTITION}}})",
                            "{{partition}} on {{pod}}",
                        ),
                    ),
                    alerts=("WaltzPartitionUnavailable", "WaltzPartitionUnowned"),
                ),
                Panel(
                    "Store session",
                    "It rises with every recovery; often means that replicas or ZooKeeper are unsteady.",
                    (Query(f"max by (partition) (waltz_server_session_id{{{PARTITION}}})", "{{partition}}"),),
                ),
                Panel(
                    "Transactions that a copy lacks",
                    "Behind the committed mark, by node.",
                    (
                        Query(
                            f"clamp_min(max by (partition) (waltz_server_high_water_mark{{{PARTITION}}})"
                            f" - on (partition) group_right () waltz_storage_max_transaction_id{{{PARTITION}}}, 0)",
                            "{{partition}} on {{pod}}",
                        ),
                    ),
                    alerts=("WaltzReplicaBehind", "WaltzReplicaLagging", "WaltzNoQuorum"),
                ),
            ),
        ),
        Row(
            "Work and errors",
            (
                Panel(
                    "Appends committed",
                    "Per second.",
                    (
                        Query(
                            f"sum by (partition) ({per_second('waltz_server_successful_append_total', PARTITION)})",
                            "{{partition}}",
                        ),
                    ),
                    unit="ops",
                ),
                Panel(
                    "Lock conflicts",
                    "Appends refused because what they were based on has changed.",
                    (
                        Query(
                            f"sum by (partition) ({per_second('waltz_server_rejected_append_total', PARTITION)})",
                            "{{partition}}",
                        ),
                    ),
                    unit="ops",
                ),
                Panel(
                    "Dropped, and failed reads",
                    "A full queue drops appends, which clients send again.",
                    (
                        Query(
                            f"sum by (partition) ({per_second('waltz_server_append_dropped_queue_full_total', PARTITION)})",
                            "{{partition}} queue full",
                        ),
                        Query(
                            f"sum by (partition) ({per_second('waltz_server_read_failures_total', PARTITION)})",
                            "{{partition}} reads",
                        ),
                    ),
                    unit="ops",
                    alerts=("WaltzAppendsDropped",),
                ),
            ),
        ),
        Row(
            "Time and queues",
            (
                Panel(
                    "Append in the server",
                    "99th percentile from its arrival to its commit.",
                    (
                        Query(
                            quantile(0.99, "waltz_server_response_latency_seconds", PARTITION, "partition"),
                            "{{partition}}",
                        ),
                    ),
                    unit="s",
                ),
                Panel(
                    "Request in the storage nodes",
                    "99th percentile from its arrival to the end of its sync.",
                    (
                        Query(
                            quantile(
                                0.99, "waltz_storage_append_latency_seconds", PARTITION, "partition, pod"
                            ),
                            "{{partition}} on {{pod}}",
                        ),
                    ),
                    unit="s",
                ),
                Panel(
                    "Waiting",
                    "Appends in the queue, appends on their way, mounts and flushes without an answer.",
                    (
                        Query(
                            f"sum by (partition) (waltz_server_append_queue_size{{{PARTITION}}})",
                            "{{partition}} queue",
                        ),
                        Query(
                            f"sum by (partition) (waltz_server_pending_append{{{PARTITION}}})",
                            "{{partition}} on their way",
                        ),
                        Query(
                            f"sum by (partition) (waltz_server_waiting_mounts_and_flushes{{{PARTITION}}})",
                            "{{partition}} mounts, flushes",
                        ),
                    ),
                ),
                Panel(
                    "Feeds",
                    "Clients that follow the partition.",
                    (Query(f"sum by (partition) (waltz_server_feeds{{{PARTITION}}})", "{{partition}}"),),
                ),
                Panel(
                    "Behind in the clients",
                    "Transactions that callbacks have not applied; of all clients that Prometheus reads.",
                    (
                        Query(
                            'max by (client, partition) (waltz_client_lag_transactions{partition=~"$partition"})',
                            "{{client}} {{partition}}",
                        ),
                    ),
                    sparse=True,
                ),
                Panel(
                    "Bytes of the log",
                    "On disk, by node.",
                    (Query(f"waltz_storage_log_bytes{{{PARTITION}}}", "{{partition}} on {{pod}}"),),
                    unit="bytes",
                ),
            ),
        ),
    ),
)
