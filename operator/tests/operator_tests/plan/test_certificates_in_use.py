"""Which certificate of a role is shown in the status, and when one that was renewed is late."""

from __future__ import annotations

from dataclasses import replace

from operator_tests.plan.cluster import facts
from operator_tests.resources.clusters import cluster
from waltz_operator.api.cluster_status import RoleCertificate
from waltz_operator.model.facts import Facts
from waltz_operator.model.snapshot import KubeView, NodeView, ServerView, Snapshot, TreeView, Unknown
from waltz_operator.plan.builder import Decision
from waltz_operator.plan.status.certificates_in_use import LATE_SECONDS, certificates_in_use, not_in_use
from waltz_operator.plan.status.conditions import conditions
from waltz_operator.plan.status.partition_health import health_of
from waltz_protocol.types import ShownCertificate

OLD, NEW = ShownCertificate("1", 5_000.0), ShownCertificate("2", 9_000.0)
NODES = [f"ledger-storage-{group}-0-0.ledger-storage.demo.svc:55280" for group in (1, 2, 3)]
SERVER = "10-1-2-3.ledger-server.demo.svc:55180"
STRANGER = "s1.example.com:55280"


def look(
    *shown: ShownCertificate | None,
    secret: ShownCertificate | None = NEW,
    now: float = 1_000.0,
    stranger: ShownCertificate | None = None,
    server: ShownCertificate | None = None,
) -> tuple[Snapshot, Facts]:
    """What each storage node showed, None: it did not answer."""
    nodes: dict[str, NodeView | Unknown] = {
        name: Unknown("no route") if one is None else NodeView({}, now, certificate=one)
        for name, one in zip(NODES, shown, strict=False)
    }
    if stranger is not None:
        nodes[STRANGER] = NodeView({}, now, certificate=stranger)
    found = facts()
    assert isinstance(found.tree, TreeView)
    tree = replace(found.tree, servers={1: SERVER})
    servers = {1: ServerView(frozenset(), {}, {}, now, server)}
    held = {} if secret is None else {"storage": secret, "server": secret}
    snapshot = Snapshot(cluster(), KubeView(), tree, nodes, servers, now, certificates=held)
    return snapshot, replace(found, tree=tree, nodes=nodes, servers=servers, now=now)


def storage(
    *shown: ShownCertificate | None, last: RoleCertificate | None = None, **more: float
) -> RoleCertificate:
    snapshot, found = look(*shown, **more)  # type: ignore[arg-type]
    (one,) = certificates_in_use(snapshot, found, () if last is None else (last,))
    return one


def test_all_use_what_the_secret_has() -> None:
    one = storage(NEW, NEW, NEW)
    assert (one.role, one.in_use_serial, one.differing, one.differs_since) == ("storage", "2", 0, None)
    assert one.in_use_until == one.secret_until == "1970-01-01T02:30:00Z"


def test_the_one_that_lags_is_named_and_since_when() -> None:
    one = storage(NEW, OLD, NEW)
    assert (one.in_use_by, one.in_use_serial, one.differing) == (NODES[1], "1", 1)
    assert (one.in_use_until, one.differs_since) == ("1970-01-01T01:23:20Z", "1970-01-01T00:16:40Z")
    later = storage(OLD, OLD, NEW, last=one, now=2_000.0)
    assert (later.differing, later.differs_since) == (2, one.differs_since)
    assert storage(NEW, NEW, NEW, last=later, now=2_100.0).differs_since is None
    assert storage(NEW, OLD, NEW, last=storage(NEW, NEW, NEW), now=2_200.0).differs_since is not None


def test_nothing_that_moves_is_in_it() -> None:
    """A cluster at rest is not written to."""
    one = storage(NEW, OLD, NEW)
    assert storage(NEW, OLD, NEW, last=one, now=1_500.0) == one


def test_a_role_of_which_nobody_answers_keeps_what_was_seen() -> None:
    one = storage(NEW, OLD, NEW)
    assert storage(None, None, None, last=one) == one
    snapshot, found = look(None, None, None)
    assert certificates_in_use(snapshot, found, ()) == ()


def test_it_is_late_after_the_limit_only() -> None:
    one = storage(NEW, OLD, OLD)
    snapshot, _ = look(NEW, OLD, OLD, now=1_000.0 + LATE_SECONDS - 1.0)
    assert not_in_use(snapshot, (one,)) == ""
    late = replace(snapshot, now=1_000.0 + LATE_SECONDS)
    text = not_in_use(late, (one,))
    assert text.startswith(
        f"{NODES[1]} does not use the certificate in Secret ledger-tls-storage, and 1 more"
    )
    well = facts()
    made = conditions(well, Decision(well.memory), health_of(well), (), (), 1, "", text)
    degraded = next(condition for condition in made if condition.type == "Degraded")
    assert (degraded.status, degraded.reason, degraded.message) == ("True", "CertificateNotInUse", text)


def test_nodes_of_others_have_certificates_of_their_own() -> None:
    snapshot, found = look(NEW, NEW, NEW, stranger=OLD)
    (one,) = certificates_in_use(snapshot, found, ())
    assert (one.in_use_by, one.differing) == (STRANGER, 0)


def test_servers_have_an_entry_of_their_own() -> None:
    snapshot, found = look(NEW, NEW, NEW, server=OLD)
    roles = {one.role: one for one in certificates_in_use(snapshot, found, ())}
    assert (roles["server"].in_use_by, roles["server"].differing, roles["storage"].differing) == (
        SERVER,
        1,
        0,
    )


def test_without_a_secret_that_can_be_read_nothing_differs() -> None:
    snapshot, found = look(NEW, OLD, NEW, secret=None)
    (one,) = certificates_in_use(snapshot, found, ())
    assert (one.secret_until, one.differing, one.in_use_serial) == (None, 0, "1")
