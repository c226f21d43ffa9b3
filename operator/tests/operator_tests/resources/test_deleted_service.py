"""A Service that somebody deletes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from operator_tests.resources.clusters import INPUTS, cluster, live, objects
from operator_tests.resources.test_addresses import with_families


@pytest.mark.parametrize("families", [["IPv4", "IPv6"], ["IPv6"]])
@pytest.mark.parametrize(
    ("service", "workload"),
    [
        ("ledger-server", ("Deployment", "ledger-server")),
        ("ledger-storage", ("StatefulSet", "ledger-storage-1-0")),
    ],
)
def test_a_deleted_service_changes_no_pod(
    families: list[str], service: str, workload: tuple[str, str]
) -> None:
    """It is back in the same pass; nothing that pods are made of is another meanwhile."""
    inputs = with_families(families)
    found = objects(cluster(), inputs)
    there = {**live(found), **{key: one for key, one in inputs.live.items() if key[0] == "Service"}}
    del there["Service", service]
    after = objects(cluster(), replace(INPUTS, live=there))
    assert after["ConfigMap", service]["data"] == found["ConfigMap", service]["data"]
    template = [one[workload]["spec"]["template"] for one in (found, after)]
    assert template[0] == template[1]
