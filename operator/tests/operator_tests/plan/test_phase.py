"""The whole in one word."""

from __future__ import annotations

from dataclasses import replace

import pytest

from operator_tests.plan.cluster import NODES, facts, listed, name
from waltz_cluster.replica_rules import NeverStarted
from waltz_cluster.serializers import PartitionMetadata
from waltz_operator.model.facts import Facts
from waltz_operator.model.snapshot import TreeView, Unknown
from waltz_operator.plan.builder import Decision
from waltz_operator.plan.status.conditions import phase
from waltz_operator.plan.status.partition_health import health_of

SILENT = Unknown("no route")


def phase_of(found: Facts) -> str:
    return phase(found, Decision(found.memory), health_of(found))


def with_record(found: Facts, record: PartitionMetadata | NeverStarted) -> Facts:
    assert isinstance(found.tree, TreeView)
    return replace(found, tree=replace(found.tree, partitions={0: record}))


def test_a_cluster_that_has_run_and_answers_nobody_is_degraded() -> None:
    """All certificates have expired, say: it is not being made."""
    silent = replace(facts(says=dict.fromkeys(NODES, SILENT)), servers={1: SILENT})
    assert phase_of(silent) == "Degraded"
    assert phase_of(facts()) == "Ready"


@pytest.mark.parametrize(
    "record", [NeverStarted(), PartitionMetadata(0, 1, {name(node): listed(node, -1) for node in NODES})]
)
def test_a_cluster_whose_first_session_has_not_begun_is_being_made(
    record: PartitionMetadata | NeverStarted,
) -> None:
    found = with_record(facts(), record)
    assert phase_of(replace(found, servers={1: SILENT})) == "Creating"
