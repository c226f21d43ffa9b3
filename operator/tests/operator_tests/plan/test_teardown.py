"""The end of a cluster: what of the managed ZooKeeper's volumes goes, and what stays."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from operator_tests.plan.cluster import KEY, desired, facts, kube, told
from operator_tests.resources.clusters import cluster, objects
from waltz_admin.found_tree import BrokenTree, NoTree
from waltz_operator.model.actions import (
    DeleteObject,
    DeletePVC,
    DeleteTree,
    DisownObject,
    EmitEvent,
    OwnObject,
)
from waltz_operator.model.desired import desired_of
from waltz_operator.model.facts import Facts
from waltz_operator.model.snapshot import (
    KubeView,
    ObjectKey,
    ObjectView,
    PVCView,
    SecretView,
    TreeView,
    Unknown,
)
from waltz_operator.plan.cluster import decide
from waltz_operator.plan.preconditions import still_so
from waltz_operator.plan.safety_gates import Allowed, Denied
from waltz_operator.run.read_kubernetes import is_ours

CLAIMS = ("data-c-zookeeper-0", "data-c-zookeeper-1")
ELSE = "data-other-zookeeper-0"
OTHER = UUID(int=1)


def ending(*, delete: bool, gone: tuple[str, ...] = (), component: str = "zookeeper") -> Facts:
    """All is deleted but ZooKeeper; `gone`: claims that are being deleted."""
    claims = {
        name: PVCView(f"uid of {name}", 1, 1, component=component, deleting=name in gone)
        for name in (*CLAIMS, ELSE)
    }
    view = replace(kube(nodes=()), deployment=None, pvcs=claims)
    wanted = replace(desired(), deleting=True, reclaim_delete=delete, zookeeper_claims=CLAIMS)
    return replace(facts(view), desired=wanted, tree=NoTree(), nodes={})


def test_with_delete_the_claims_of_the_managed_zookeeper_go_before_the_finalizer() -> None:
    decision = decide(ending(delete=True), ())
    deleted = {action.name: action.uid for action in decision.actions if isinstance(action, DeletePVC)}
    assert deleted == {name: f"uid of {name}" for name in CLAIMS}
    assert not decision.teardown_complete


def test_a_pause_never_holds_up_a_deletion() -> None:
    found = ending(delete=True)
    paused = replace(found, desired=replace(found.desired, paused=True))
    assert decide(paused, ()).actions == decide(found, ()).actions
    assert decide(paused, ()).actions


def test_claims_that_wait_for_their_pods_do_not_hold_the_finalizer() -> None:
    decision = decide(ending(delete=True, gone=CLAIMS), ())
    assert decision.teardown_complete
    assert not decision.actions


def test_claims_of_servers_that_the_specification_no_longer_names_go_too() -> None:
    """A cluster that was made again over the volumes of a larger one: what is left would come to life in the
    next cluster of that name."""
    found = ending(delete=True)
    found = replace(
        found, desired=replace(found.desired, zookeeper_claims=CLAIMS[:1], zookeeper_set="c-zookeeper")
    )
    deleted = [action.name for action in decide(found, ()).actions if isinstance(action, DeletePVC)]
    assert deleted == list(CLAIMS)
    for name in CLAIMS:
        assert isinstance(still_so(found, DeletePVC(name, "uid", "proof")), Allowed)


def test_with_retain_the_claims_stay() -> None:
    decision = decide(ending(delete=False), ())
    assert decision.teardown_complete
    assert not decision.actions


OWN = "uid of the cluster"


def owned(found: Facts, *owners: str) -> Facts:
    """The same, with everything that holds data owned by these."""
    assert isinstance(found.kube, KubeView)
    claims = {name: replace(claim, owners=owners) for name, claim in found.kube.pvcs.items()}
    secrets = {
        name: SecretView(f"uid of {name}", owners) for name in ("c-zookeeper-auth", "c-zookeeper-export")
    }
    return replace(
        found,
        kube=replace(found.kube, pvcs=claims),
        desired=replace(found.desired, uid=OWN),
        own_secrets=secrets,
    )


def test_with_retain_nothing_that_holds_data_goes_by_garbage_collection() -> None:
    """The policy was Delete when the last pass wrote: the cluster still owns what is to stay."""
    found = owned(left(NoTree(), managed=True, delete=False), "another", OWN)
    decision = decide(found, ())
    assert {action.key: action.uid for action in decision.actions if isinstance(action, DisownObject)} == {
        ObjectKey(kind, name): f"uid of {name}"
        for kind, names in (
            ("PersistentVolumeClaim", (*CLAIMS, ELSE, "data-s1-0")),
            ("Secret", ("c-zookeeper-auth", "c-zookeeper-export")),
        )
        for name in names
    }
    assert len(decision.actions) == 6
    assert not decision.teardown_complete  # not before it is seen
    assert decide(owned(found, "another"), ()).teardown_complete


def test_with_retain_it_is_kept_before_anything_is_taken_down() -> None:
    found = owned(left(NoTree(), delete=False), OWN)
    assert isinstance(found.kube, KubeView)
    running = replace(found, kube=replace(kube(), pvcs=found.kube.pvcs))
    kinds = [type(action) for action in decide(running, ()).actions]
    assert kinds == [DisownObject] * 6 + [DeleteObject]


@pytest.mark.parametrize(
    "wish", [{}, {"paused": True}, {"reclaim_delete": True}, {"paused": True, "reclaim_delete": True}]
)
@pytest.mark.parametrize("problems", [(), ("spec.x: is wrong",)])
def test_a_cluster_that_lives_owns_nothing_that_holds_data(
    wish: dict[str, bool], problems: tuple[str, ...]
) -> None:
    """An earlier release left it so. A foreground deletion waits neither for a pass nor for the finalizer."""
    found = owned(left(NoTree(), managed=True, delete=False), "another", OWN)
    lives = {"deleting": False, **wish}
    found = replace(found, desired=replace(found.desired, **lives), problems=problems)  # type: ignore[arg-type]
    first = decide(found, ()).actions[:6]
    assert {action.key.name for action in first if isinstance(action, DisownObject)} == {
        *(*CLAIMS, ELSE, "data-s1-0"),
        *("c-zookeeper-auth", "c-zookeeper-export"),
    }
    then = replace(owned(found, "another"), desired=found.desired)
    assert not any(isinstance(action, DisownObject) for action in decide(then, ()).actions)


def test_a_claim_that_is_being_deleted_is_not_said_to_be_kept() -> None:
    """Garbage collection, or a person, has been there first."""
    found = owned(ending(delete=False, gone=CLAIMS[:1]), OWN)
    actions = decide(found, ()).actions
    assert CLAIMS[0] not in {action.key.name for action in actions if isinstance(action, DisownObject)}
    (warning,) = [action for action in actions if isinstance(action, EmitEvent)]
    assert (warning.reason, warning.type) == ("VolumeBeingDeleted", "Warning")
    assert CLAIMS[0] in warning.text
    assert not any(isinstance(one, EmitEvent) for one in decide(ending(delete=True, gone=CLAIMS), ()).actions)


def test_with_delete_the_secrets_go_with_the_cluster_when_the_volumes_are_gone() -> None:
    """By garbage collection: the operator may not delete Secrets."""
    found = owned(ending(delete=True), "another")
    assert not any(isinstance(action, OwnObject) for action in decide(found, ()).actions)
    gone = owned(ending(delete=True, gone=CLAIMS), "another")
    decision = decide(gone, ())
    assert [(one.key.name, one.uid) for one in decision.actions if isinstance(one, OwnObject)] == [
        (name, f"uid of {name}") for name in ("c-zookeeper-auth", "c-zookeeper-export")
    ]
    assert not decision.teardown_complete  # not before it is seen
    assert decide(owned(gone, OWN), ()).teardown_complete
    kept = decide(owned(ending(delete=False, gone=CLAIMS), "another"), ())
    assert not any(isinstance(action, OwnObject) for action in kept.actions)


def released(found: Facts, *owners: str) -> Facts:
    """The same with objects that the operator has applied, and a certificate: owned by these."""
    assert isinstance(found.kube, KubeView)
    references = [{"uid": one} for one in owners]
    objects = {
        ObjectKey(kind, "c"): ObjectView(
            f"uid of {kind}", "1", "hash", {"metadata": {"ownerReferences": references}}
        )
        for kind in ("StatefulSet", "Service", "PersistentVolumeClaim", "Secret", "Job")
    }
    nobody: dict[str, object] = {"metadata": {}}
    objects[ObjectKey("Service", "going")] = ObjectView("uid", "1", "hash", nobody, deleting=True)
    objects[ObjectKey("Service", "of-a-person")] = ObjectView("uid", "1", None, nobody)
    secrets = {"c-tls-ca": SecretView("uid of Secret", owners, data=False)}
    wanted = replace(found.desired, uid=OWN)
    return replace(found, kube=replace(found.kube, objects=objects), own_secrets=secrets, desired=wanted)


@pytest.mark.parametrize("delete", [False, True])
def test_what_an_orphaning_deletion_has_released_goes_all_the_same(delete: bool) -> None:
    found = ending(delete=delete, gone=CLAIMS)
    decision = decide(released(found), ())
    assert [one.key for one in decision.actions if isinstance(one, OwnObject)] == [
        ObjectKey("Service", "c"),
        ObjectKey("StatefulSet", "c"),
        ObjectKey("Secret", "c-tls-ca"),
    ]
    assert not decision.teardown_complete  # not before it is seen
    assert decide(released(found, OWN), ()).teardown_complete
    assert decide(released(found, "another"), ()).teardown_complete


def test_an_orphaning_deletion_waits_until_everything_is_released() -> None:
    """Later Kubernetes would take the cluster out of the owners once more."""
    found = released(ending(delete=True, gone=CLAIMS))
    found = replace(found, desired=replace(found.desired, orphaning=True))
    decision = decide(found, ())
    assert (decision.actions, decision.teardown_complete) == ([], False)
    assert told(found, decision)[2] == "Kubernetes has not released yet what the cluster owns"


def test_with_delete_what_the_cluster_owns_stays_its_own() -> None:
    decision = decide(owned(ending(delete=True), OWN), ())
    assert [type(action) for action in decision.actions] == [DeletePVC, DeletePVC]


def test_a_claim_of_that_name_that_is_not_zookeepers_stays() -> None:
    decision = decide(ending(delete=True, component=""), ())
    assert decision.teardown_complete
    assert not decision.actions


def foreign(found: Facts) -> Facts:
    """The same with an ensemble of one's own."""
    return replace(found, desired=replace(found.desired, zookeeper_claims=()))


VOLUME = {"data-s1-0": PVCView("uid of data-s1-0", 1, 1, group="1", node="0")}
TREE = facts().tree
assert isinstance(TREE, TreeView)
SERVED = replace(TREE, servers={})
CUT = BrokenTree("the store has no assignment", "c", KEY)
"""What a deletion that was cut leaves."""


def left(
    tree: TreeView | NoTree | BrokenTree | Unknown, *, managed: bool = False, delete: bool = True
) -> Facts:
    """Pods are gone; the volume of a storage node and this of the tree are left."""
    found = ending(delete=delete)
    view = found.kube
    assert isinstance(view, KubeView)
    found = replace(found, tree=tree, kube=replace(view, pvcs={**view.pvcs, **VOLUME}))
    return found if managed else foreign(found)


@pytest.mark.parametrize(
    "tree",
    [
        SERVED,
        replace(SERVED, cluster_name="prod"),
        CUT,
        replace(CUT, name="prod"),
        BrokenTree("", "c", None, True),
    ],
)
def test_the_tree_goes_before_the_volumes_and_what_is_left_of_it_too(tree: TreeView | BrokenTree) -> None:
    """An adopted one under the name that it has."""
    found = left(tree)
    (deletion,) = decide(found, ()).actions
    name = tree.cluster_name if isinstance(tree, TreeView) else tree.name
    assert isinstance(deletion, DeleteTree)
    assert (deletion.name, deletion.cluster_key) == (name, KEY)
    assert isinstance(still_so(found, deletion), Allowed)


def unrecorded(tree: TreeView | NoTree | Unknown) -> Facts:
    """As after an operator that was killed before it recorded a key."""
    found = left(tree)
    desired = replace(found.desired, created_key=KEY)
    return replace(found, desired=desired, memory=replace(found.memory, cluster_key=None))


def test_a_tree_that_was_made_and_not_recorded_goes_by_the_key_of_its_object() -> None:
    found = unrecorded(SERVED)
    (deletion,) = decide(found, ()).actions
    assert isinstance(deletion, DeleteTree)
    assert deletion.cluster_key == KEY
    assert isinstance(still_so(found, deletion), Allowed)


@pytest.mark.parametrize("tree", [replace(SERVED, cluster_key=OTHER), NoTree(), Unknown("no connection")])
def test_safety_a7_without_a_record_nothing_goes_and_nothing_waits(
    tree: TreeView | NoTree | Unknown,
) -> None:
    """The cluster was refused: the volume is of an earlier one of its name."""
    found = unrecorded(tree)
    decision = decide(found, ())
    assert [type(action) for action in decision.actions] == [EmitEvent]
    assert not decision.blocked
    assert decision.teardown_complete
    (said,) = decision.actions
    assert isinstance(said, EmitEvent)
    assert (said.reason, said.type) == ("LeftoverVolumes", "Warning")
    assert "data-s1-0" in said.text
    assert isinstance(still_so(found, DeletePVC("data-s1-0", "uid of data-s1-0", "proof")), Denied)


MADE = 100.0
"""When the cluster was."""


def aged(found: Facts, created: float, *owners: str, mark: str | None = None) -> Facts:
    """The same of a cluster that was made at that time, with all claims and Secrets of this one."""
    found = owned(found, *owners)
    assert isinstance(found.kube, KubeView)
    claims = {name: replace(claim, created=created, cluster=mark) for name, claim in found.kube.pvcs.items()}
    secrets = {name: view._replace(created=created, cluster=mark) for name, view in found.own_secrets.items()}
    return replace(
        found,
        kube=replace(found.kube, pvcs=claims),
        desired=replace(found.desired, created=MADE),
        own_secrets=secrets,
    )


def unkeyed(*, managed: bool) -> Facts:
    found = left(NoTree(), managed=managed)
    return replace(found, memory=replace(found.memory, cluster_key=None))


@pytest.mark.parametrize(("owners", "mark"), [((), OWN), ((OWN,), None)])
def test_what_a_cluster_without_a_key_has_made_goes(owners: tuple[str, ...], mark: str | None) -> None:
    """By its mark; an earlier release made the cluster its owner."""
    found = aged(unkeyed(managed=True), MADE, *owners, mark=mark)
    (deletion,) = decide(found, ()).actions
    assert isinstance(deletion, DeletePVC)
    assert isinstance(still_so(found, deletion), Allowed)
    assert isinstance(found.kube, KubeView)
    then = {name: claim for name, claim in found.kube.pvcs.items() if not claim.node}
    last = decide(replace(found, kube=replace(found.kube, pvcs=then)), ())
    assert [action.name for action in last.actions if isinstance(action, DeletePVC)] == list(CLAIMS)


def test_what_somebody_has_restored_for_a_cluster_without_a_key_stays() -> None:
    """Later than the cluster was made, with the labels of the volumes that it replaces."""
    found = aged(unkeyed(managed=True), MADE + 1.0, mark="uid of the one before")
    decision = decide(found, ())
    assert [type(action) for action in decision.actions] == [EmitEvent]
    assert decision.teardown_complete
    assert isinstance(still_so(found, DeletePVC(CLAIMS[0], f"uid of {CLAIMS[0]}", "proof")), Denied)


def test_what_was_there_before_it_stays_though_it_was_taken_over() -> None:
    """Claims of a managed ZooKeeper are, before its tree can be read: the cluster owns them."""
    found = aged(unkeyed(managed=True), MADE - 1.0, OWN)
    first = decide(found, ())
    kept = [action.key.name for action in first.actions if isinstance(action, DisownObject)]
    assert kept == [*CLAIMS, ELSE, "data-s1-0", "c-zookeeper-auth", "c-zookeeper-export"]
    assert not any(isinstance(action, DeletePVC) for action in first.actions)
    assert not first.teardown_complete
    then = decide(aged(found, MADE - 1.0, mark=OWN), ())
    assert [type(action) for action in then.actions] == [EmitEvent]
    assert then.teardown_complete


def test_with_a_recorded_key_older_volumes_go_too() -> None:
    """The cluster adopted them by their key."""
    found = aged(left(NoTree()), MADE - 1.0)
    (deletion,) = decide(found, ()).actions
    assert isinstance(deletion, DeletePVC)
    assert isinstance(still_so(found, deletion), Allowed)


@pytest.mark.parametrize("tree", [replace(SERVED, cluster_key=OTHER), replace(CUT, cluster_key=OTHER)])
def test_safety_a7_a_tree_with_another_key_stays_whole_or_broken(tree: TreeView | BrokenTree) -> None:
    decision = decide(left(tree), ())
    assert [type(action) for action in decision.actions] == [DeletePVC]
    assert isinstance(still_so(left(tree), DeleteTree("c", KEY, "proof")), Denied)


@pytest.mark.parametrize(
    ("tree", "reason"),
    [
        (Unknown("no connection"), "ZooKeeperUnknown"),
        (BrokenTree("half", "c"), "TreeBroken"),
        (BrokenTree("half", "else", None, True), "TreeBroken"),
        (BrokenTree("half", None, KEY), "TreeBroken"),
        (TREE, "WaitingForServers"),
    ],
)
def test_safety_a7_what_is_not_proven_to_be_ours_is_not_deleted(
    tree: TreeView | BrokenTree | Unknown, reason: str
) -> None:
    decision = decide(left(tree), ())
    assert (decision.actions, [one.reason for one in decision.blocked]) == ([], [reason])
    assert isinstance(still_so(left(tree), DeleteTree("c", KEY, "proof")), Denied)


def test_progressing_says_why_a_deletion_waits_and_what_to_do() -> None:
    found = left(Unknown("Secret zk has no auth: the credentials of ZooKeeper"))
    status, reason, message = told(found, decide(found, ()))
    assert (status, reason) == ("True", "ZooKeeperUnknown")
    assert "Secret zk has no auth" in message
    assert "waltz.dev/skip-teardown=c" in message
    going = left(NoTree())
    assert told(going, decide(going, ())) == ("True", "Deleting", "the cluster is being deleted")


@pytest.mark.parametrize("tree", [TREE, SERVED, CUT, NoTree(), Unknown("its pods are gone")])
def test_a_tree_in_a_managed_zookeeper_goes_with_its_volumes(
    tree: TreeView | NoTree | BrokenTree | Unknown,
) -> None:
    """Whoever deletes a whole namespace has no ZooKeeper any more when the cluster's turn comes."""
    first = decide(left(tree, managed=True), ())
    (volume,) = first.actions
    assert isinstance(volume, DeletePVC)
    assert volume.name == "data-s1-0"
    assert not first.teardown_complete
    then = decide(replace(ending(delete=True), tree=tree), ())
    assert [action.name for action in then.actions if isinstance(action, DeletePVC)] == list(CLAIMS)
    assert decide(replace(ending(delete=True, gone=CLAIMS), tree=tree), ()).teardown_complete
    kept = decide(left(tree, managed=True, delete=False), ())
    assert (kept.actions, kept.teardown_complete) == ([], True)


@pytest.mark.parametrize(
    ("name", "delete", "allowed"),
    [(CLAIMS[0], True, True), (CLAIMS[0], False, False), (ELSE, True, False), ("data-s1-0", True, True)],
)
def test_the_second_look_proves_whose_the_claim_is(name: str, delete: bool, allowed: bool) -> None:
    answer = still_so(ending(delete=delete), DeletePVC(name, "uid", "proof"))
    assert isinstance(answer, Allowed if allowed else Denied)


def test_the_claims_that_the_stateful_set_makes_are_known_by_their_names_and_labels() -> None:
    made = cluster({"zookeeper": {"managed": {"replicas": 3}}})
    (found,) = [
        one for (kind, at), one in objects(made).items() if kind == "StatefulSet" and "zookeeper" in at
    ]
    (template,) = found["spec"]["volumeClaimTemplates"]
    names = [f"{template['metadata']['name']}-{found['metadata']['name']}-{n}" for n in range(3)]
    assert list(desired_of(made).zookeeper_claims) == names
    assert is_ours(template)
    assert not is_ours({"metadata": {"labels": {"app.kubernetes.io/instance": "ledger"}}})
    assert not is_ours({"metadata": {"labels": {"app.kubernetes.io/component": "zookeeper"}}})
