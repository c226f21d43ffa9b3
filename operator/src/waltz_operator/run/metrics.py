"""What the operator says about itself and its clusters, for Prometheus. Alert rules:
`manifests/monitoring`.

One registry per process; everything about one object goes when the object does.
"""

from __future__ import annotations

from collections.abc import Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest

from waltz_cluster.quorum import shortage
from waltz_operator.model.actions import Blocked
from waltz_operator.model.desired import desired_of
from waltz_operator.model.ensemble import not_serving, to_record
from waltz_operator.model.facts import Facts, facts_of
from waltz_operator.model.snapshot import KubeView, NodeView, Snapshot, TreeView

_OBJECT = ("namespace", "name")
_DURATIONS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)

Key = tuple[str, str]


class OperatorMetrics:
    """One writer: the loop. Ages are computed when asked for, from the clock of `now` (seconds,
    monotonic)."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)

        def gauge(name: str, text: str, labels: tuple[str, ...] = _OBJECT) -> Gauge:
            return Gauge(f"waltz_operator_{name}", text, labels, registry=self.registry)

        def counter(name: str, text: str, labels: tuple[str, ...] = _OBJECT) -> Counter:
            return Counter(f"waltz_operator_{name}", text, labels, registry=self.registry)

        self.holding_lease = gauge("holding_lease", "1 while this operator may write.", ())
        self.clusters = gauge("clusters", "WaltzClusters that are looked after.", ())
        self._age = gauge("reconcile_age_seconds", "Time since the last complete pass, seconds.")
        self._duration = Histogram(
            "waltz_operator_reconcile_duration_seconds",
            "Duration of a pass, seconds.",
            buckets=_DURATIONS,
            registry=self.registry,
        )
        self._waits = Histogram(
            "waltz_operator_place_wait_seconds",
            "Time that a pass has waited for those of other clusters, seconds.",
            buckets=_DURATIONS,
            registry=self.registry,
        )
        self._passes = counter("reconciles_total", "Passes.")
        self._errors = counter(
            "reconcile_errors_total", "Passes that ended with an error.", (*_OBJECT, "reason")
        )
        self._writes = counter("writes_total", "Writes carried out.", (*_OBJECT, "action"))
        self._blocked = counter(
            "gate_blocked_seconds_total",
            "Time that steps have waited for their gate, seconds.",
            (*_OBJECT, "reason"),
        )
        self._replicas = gauge("replicas", "Replicas assigned in ZooKeeper.")
        self._caught_up = gauge("replicas_caught_up", "Replicas proven to be current (safety rule A6).")
        self._partitions = gauge("partitions", "Partitions.")
        self._quorum = gauge(
            "partitions_with_quorum", "Partitions a quorum of whose replicas is proven to be current."
        )
        self._unreachable = gauge("unreachable", "Storage nodes and servers that gave no complete answer.")
        self._zookeeper = gauge(
            "zookeeper_servers_down", "Servers of the managed ZooKeeper whose pod is missing or not ready."
        )
        self._moved = counter("partition_moves_total", "Partitions that moved to another server by load.")
        self._copied = counter("migration_bytes_total", "Bytes copied by the Jobs of migrations.")
        self._expiry = gauge(
            "certificate_expiry_timestamp_seconds", "When a certificate ends, Unix time.", (*_OBJECT, "role")
        )
        self._figures = (
            self._replicas, self._caught_up, self._partitions, self._quorum, self._unreachable, self._zookeeper,
        )  # fmt: skip
        """Those of an observation, apart from certificates."""
        self._done_at: dict[Key, float] = {}
        self._blocked_at: dict[Key, tuple[float, frozenset[str]]] = {}
        self._counted_jobs: dict[Key, set[str]] = {}

    # ---- called by the loop

    def pass_done(self, key: Key, seconds: float, now: float, error: str | None) -> None:
        """A pass ended; `error`: a short word, None when it was complete."""
        self._passes.labels(*key).inc()
        self._duration.observe(seconds)
        if error is not None:
            self._errors.labels(*key, error).inc()
            self._done_at.setdefault(key, now)
        else:
            self._done_at[key] = now

    def waited(self, seconds: float) -> None:
        """A pass has got its place."""
        self._waits.observe(seconds)

    def left_out(self, key: Key) -> None:
        """A complete pass had to leave something out."""
        self._errors.labels(*key, "refused").inc()

    def wrote(self, key: Key, action: str) -> None:
        self._writes.labels(*key, action).inc()

    def moved(self, key: Key, partitions: int) -> None:
        """So many were given to another server."""
        self._moved.labels(*key).inc(partitions)

    def blocked(self, key: Key, blocked: tuple[Blocked, ...], now: float) -> None:
        """What waits now; what waited already last time has waited all the time in between."""
        before = self._blocked_at.get(key)
        reasons = frozenset(str(one.reason) for one in blocked)
        if before is not None:
            for reason in before[1]:
                self._blocked.labels(*key, reason).inc(now - before[0])
        self._blocked_at[key] = (now, reasons)

    def observed(self, key: Key, snapshot: Snapshot, expiry: Mapping[str, float]) -> None:
        """The figures of an observation. What is not known keeps no old value."""
        if isinstance(snapshot.kube, KubeView):
            for job in snapshot.kube.jobs.values():
                if job.copied_bytes is not None:
                    self.copied(key, job.uid, job.copied_bytes)
        self._observed_zookeeper(key, snapshot)
        unreachable = sum(not isinstance(view, NodeView) for view in snapshot.nodes.values())
        unreachable += sum(not hasattr(view, "healthy") for view in snapshot.servers.values())
        self._unreachable.labels(*key).set(unreachable)
        self._certificates(key, expiry)
        if isinstance(snapshot.tree, TreeView):
            replicas, caught_up, quorum = replica_figures(facts_of(snapshot))
            self._replicas.labels(*key).set(replicas)
            self._caught_up.labels(*key).set(caught_up)
            self._partitions.labels(*key).set(snapshot.tree.num_partitions)
            self._quorum.labels(*key).set(quorum)
        else:
            for metric in (self._replicas, self._caught_up, self._partitions, self._quorum):
                _remove(metric, key)

    def unobserved(self, key: Key, expiry: Mapping[str, float]) -> None:
        """Of a cluster that cannot be read, or that another installation works on, nothing is observed, apart
        from the ends of certificates that are still renewed."""
        for metric in self._figures:
            _remove(metric, key)
        self._certificates(key, expiry)
        self._blocked_at.pop(key, None)

    def _certificates(self, key: Key, expiry: Mapping[str, float]) -> None:
        """All there are: a role that has none now had one before."""
        _remove(self._expiry, key)
        for role, end in expiry.items():
            self._expiry.labels(*key, role).set(end)

    def _observed_zookeeper(self, key: Key, snapshot: Snapshot) -> None:
        """Of a managed one that was made; the members of another are not the operator's to count."""
        if isinstance(snapshot.kube, KubeView):
            desired = desired_of(snapshot.cluster)
            if to_record(desired, snapshot.kube):
                self._zookeeper.labels(*key).set(len(not_serving(desired, snapshot.kube)))
                return
        _remove(self._zookeeper, key)

    def copied(self, key: Key, job_uid: str, size_bytes: int) -> None:
        """A copy Job reported; each is counted once per life of this process."""
        counted = self._counted_jobs.setdefault(key, set())
        if job_uid not in counted:
            counted.add(job_uid)
            self._copied.labels(*key).inc(size_bytes)

    def forget(self, key: Key) -> None:
        """The object is gone."""
        self._done_at.pop(key, None)
        self._blocked_at.pop(key, None)
        self._counted_jobs.pop(key, None)
        for metric in (
            *self._figures, self._age, self._passes, self._copied, self._moved, self._errors, self._writes,
            self._blocked, self._expiry,
        ):  # fmt: skip
            _remove(metric, key)

    # ---- asked

    def text(self, now: float) -> bytes:
        """The exposition format of Prometheus."""
        for key, done in self._done_at.items():
            self._age.labels(*key).set(now - done)
        self.clusters.set(len(self._done_at))
        return generate_latest(self.registry)


def _remove(metric: Gauge | Counter, key: Key) -> None:
    """All series of the object, whatever further labels they have."""
    metric.remove_by_labels(dict(zip(_OBJECT, key, strict=True)))


def replica_figures(facts: Facts) -> tuple[int, int, int]:
    """(replicas assigned, current, partitions with a quorum of current replicas). Pure."""
    replicas = current = quorum = 0
    for partition, holders in facts.placement.items():
        reasons = {node: facts.not_current(partition, node) for node in holders}
        replicas += len(reasons)
        current += sum(not why for why in reasons.values())
        quorum += not shortage(reasons)
    return replicas, current, quorum
