"""A claim of a ZooKeeper server that exists and is not the cluster's: no pod may mount it."""

from operator_tests.resources.clusters import INPUTS, cluster
from waltz_operator.model.rendered import Rendered
from waltz_operator.model.snapshot import ObjectKey, Rejection
from waltz_operator.plan.rejected_objects import held_back
from waltz_operator.resources import desired_objects


def test_the_stateful_set_of_zookeeper_waits_for_a_claim_that_is_not_ours() -> None:
    """As restored from a snapshot, without our labels: it is written over by the others, which are empty."""
    bodies = desired_objects(cluster({"zookeeper": {"managed": {"replicas": 3}}}), INPUTS)
    objects = [Rendered(ObjectKey(b["kind"], b["metadata"]["name"]), b, "") for b in bodies]
    claim = ObjectKey("PersistentVolumeClaim", "data-ledger-zookeeper-0")
    assert claim in {one.key for one in objects}
    held = held_back(objects, {claim: Rejection("apply it: not ours", there=False)})
    assert ObjectKey("StatefulSet", "ledger-zookeeper") in held
    storage = next(
        one for one in objects if one.key.kind == "StatefulSet" and "zookeeper" not in one.key.name
    )
    own = ObjectKey("PersistentVolumeClaim", f"data-{storage.key.name}-0")
    assert storage.key in held_back(objects, {own: Rejection("not ours", there=False)}), "as of storage nodes"
