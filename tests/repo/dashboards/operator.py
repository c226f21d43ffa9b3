"""The dashboard of the operator."""

from __future__ import annotations

from tests.repo.dashboards.cluster import wrong
from tests.repo.dashboards.model import RATE, Dashboard, Panel, Query, Row, Variable

OBJECT = 'namespace=~"$namespace", name=~"$name"'

OPERATOR_DASHBOARD = Dashboard(
    "operator",
    "Waltz: operator",
    "Whether the operator works, and what it sees and does in its clusters.",
    (
        Variable(
            "namespace", "Namespace", "label_values(waltz_operator_reconciles_total, namespace)", several=True
        ),
        Variable(
            "name",
            "Cluster",
            'label_values(waltz_operator_reconciles_total{namespace=~"$namespace"}, name)',
            several=True,
        ),
    ),
    (
        Row(
            "Is it well?",
            (
                wrong(
                    "Nobody holds the Lease",
                    "1 when no operator may write: clusters work as they are, nothing is repaired.",
                    "1 - clamp_max(sum(waltz_operator_holding_lease) or vector(0), 1)",
                    "WaltzOperatorDown",
                    width=3,
                ),
                wrong(
                    "Partitions without a quorum",
                    "Fewer than a majority of their copies are proven to be current.",
                    f"sum(waltz_operator_partitions{{{OBJECT}}}) - sum(waltz_operator_partitions_with_quorum{{{OBJECT}}})",
                    "WaltzNoQuorum",
                    width=3,
                ),
                wrong(
                    "Copies behind",
                    "The next loss may cost a quorum.",
                    f"sum(waltz_operator_replicas{{{OBJECT}}}) - sum(waltz_operator_replicas_caught_up{{{OBJECT}}})",
                    "WaltzReplicaBehind",
                    width=3,
                ),
                wrong(
                    "Silent processes",
                    "Storage nodes and servers that gave the operator no complete answer.",
                    f"sum(waltz_operator_unreachable{{{OBJECT}}})",
                    "WaltzNodeUnreachable",
                    width=3,
                ),
                wrong(
                    "ZooKeeper servers down",
                    "Of those that the operator makes: without a majority of them the cluster stops.",
                    f"sum(waltz_operator_zookeeper_servers_down{{{OBJECT}}})",
                    "WaltzZooKeeperServerDown",
                    width=3,
                ),
                Panel(
                    "Oldest complete pass",
                    "Over any of the clusters.",
                    (Query(f"max(waltz_operator_reconcile_age_seconds{{{OBJECT}}})"),),
                    unit="s",
                    kind="stat",
                    width=4,
                    height=4,
                    red=900,
                    alerts=("WaltzOperatorStuck",),
                ),
                Panel(
                    "First certificate ends in",
                    "Of those that the operator looks after.",
                    (
                        Query(
                            f"min(waltz_operator_certificate_expiry_timestamp_seconds{{{OBJECT}}}) - time()"
                        ),
                    ),
                    unit="s",
                    kind="stat",
                    width=5,
                    height=4,
                    alerts=("WaltzCertificateExpiry",),
                    sparse=True,
                ),
            ),
        ),
        Row(
            "Work and errors",
            (
                Panel(
                    "Passes",
                    "Per second, by cluster.",
                    (
                        Query(
                            f"sum by (namespace, name) (rate(waltz_operator_reconciles_total{{{OBJECT}}}[{RATE}]))",
                            "{{namespace}}/{{name}}",
                        ),
                    ),
                    unit="ops",
                ),
                Panel(
                    "Passes that end with an error",
                    "By reason; the operator's log has the line.",
                    (
                        Query(
                            f"sum by (namespace, name, reason) (rate(waltz_operator_reconcile_errors_total{{{OBJECT}}}[{RATE}]))",
                            "{{namespace}}/{{name}} {{reason}}",
                        ),
                    ),
                    unit="ops",
                    alerts=("WaltzOperatorErrors",),
                    sparse=True,
                ),
                Panel(
                    "Writes",
                    "What it did, per second.",
                    (
                        Query(
                            f"sum by (action) (rate(waltz_operator_writes_total{{{OBJECT}}}[{RATE}]))",
                            "{{action}}",
                        ),
                    ),
                    unit="ops",
                    sparse=True,
                ),
            ),
        ),
        Row(
            "Time",
            (
                Panel(
                    "Duration of a pass",
                    "Median and 99th percentile, all clusters.",
                    tuple(
                        Query(
                            f"histogram_quantile({q}, sum by (le) (rate(waltz_operator_reconcile_duration_seconds_bucket[{RATE}])))",
                            f"p{q * 100:g}",
                        )
                        for q in (0.5, 0.99)
                    ),
                    unit="s",
                ),
                Panel(
                    "Steps that wait",
                    "Share of the time in which a step waited, by reason; status.operation says for what.",
                    (
                        Query(
                            f"sum by (namespace, name, reason) (rate(waltz_operator_gate_blocked_seconds_total{{{OBJECT}}}[{RATE}]))",
                            "{{namespace}}/{{name}} {{reason}}",
                        ),
                    ),
                    unit="percentunit",
                    alerts=("WaltzOperationBlocked",),
                    sparse=True,
                ),
                Panel(
                    "Bytes copied by migrations",
                    "Counted when a copy job has ended.",
                    (
                        Query(
                            f"increase(waltz_operator_migration_bytes_total{{{OBJECT}}}[1h])",
                            "{{namespace}}/{{name}}",
                        ),
                    ),
                    unit="bytes",
                    sparse=True,
                ),
            ),
        ),
    ),
)
