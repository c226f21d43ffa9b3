"""Which machines the pods keep away from."""

from __future__ import annotations

from typing import Any

from operator_tests.resources.clusters import Obj, cluster, objects


def test_servers_of_one_decision_keep_apart_from_each_other_first() -> None:
    """In a roll nothing kept both servers from one machine, whose loss stops all writes until it is back."""

    def template(changes: dict[str, Any]) -> Obj:
        found: Obj = objects(cluster(changes))["Deployment", "ledger-server"]["spec"]["template"]
        return found

    def weight(terms: Any, on_the_machine: dict[str, str]) -> int:
        """Against a machine with a pod of these labels."""
        assert all(one["podAffinityTerm"]["topologyKey"] == "kubernetes.io/hostname" for one in terms)
        wanted = [(one["weight"], one["podAffinityTerm"]["labelSelector"]["matchLabels"]) for one in terms]
        return sum(each for each, labels in wanted if labels.items() <= on_the_machine.items())

    old, new = template({}), template({"images": {"server": "waltz-server:9"}})
    terms = new["spec"]["affinity"]["podAntiAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    assert weight(terms, new["metadata"]["labels"]) > weight(terms, old["metadata"]["labels"]) > 0
