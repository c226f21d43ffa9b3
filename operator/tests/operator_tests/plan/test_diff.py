"""What counts as a change by another writer. An object that seems to be changed is applied in every pass, and
nothing else is done meanwhile: no migration begins, no authority is renewed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from operator_tests.plan import cluster
from waltz_operator.model.actions import ApplyObject
from waltz_operator.model.rendered import Rendered, rendered
from waltz_operator.model.snapshot import ObjectView, Override
from waltz_operator.plan.cluster import decide
from waltz_operator.plan.diff import difference, lost, overrides
from waltz_operator.plan.status.conditions import conditions
from waltz_operator.plan.status.partition_health import health_of

STORED = [
    # as a person writes it, and as the API server stores it
    ("10.3Gi", "11059540787200m"),
    ("1.1Gi", "1181116006400m"),
    ("100.5Mi", "102912Ki"),
    ("0.0001", "1m"),
    ("0.1m", "1m"),
    ("0.0015", "2m"),
    ("1024Mi", "1Gi"),
    ("1.5Gi", "1536Mi"),
    ("0.5", "500m"),
    ("2.0Gi", "2Gi"),
    ("1.05G", "1050M"),
    ("0.3", "300m"),
    ("8Ei", "9223372036854775807"),
]


@pytest.mark.parametrize(("written", "stored"), STORED)
def test_a_quantity_is_compared_by_its_exact_value(written: str, stored: str) -> None:
    assert lost({"requests": {"memory": written}}, {"requests": {"memory": stored}}) is None


@pytest.mark.parametrize(
    ("written", "stored"),
    [
        ("10.3Gi", "11059540787201m"),
        ("10.3Gi", "11059540788"),
        ("100.5Mi", "102911Ki"),
        ("0.0001", "2m"),
        ("1", "1001m"),
        ("9007199254740993", "9007199254740992"),
        ("1Gi", "1G"),
    ],
)
def test_another_quantity_is_a_change(written: str, stored: str) -> None:
    assert lost({"cpu": written}, {"cpu": stored}) == "cpu"


@pytest.mark.parametrize("other", ["1Gib", "Gi", "", "1e", "a", "1 Gi", "1.Gi.", "--1", "٣"])
def test_what_is_no_quantity_is_compared_as_text(other: str) -> None:
    assert lost({"cpu": "1Gi"}, {"cpu": other}) == "cpu"
    assert lost({"cpu": "3"}, {"cpu": other}) == "cpu"


def test_a_number_of_the_server_may_have_an_exponent_or_a_small_unit() -> None:
    assert lost("1e3", "1k") is None
    assert lost("1E3", "1000") is None
    assert lost("1E", "1000P") is None
    assert lost("1500u", "2m") is None
    assert lost("1e99999999", "1k") == ""


def test_a_claim_whose_size_is_stored_in_other_words_is_not_applied_again() -> None:
    def claim(size: str) -> dict[str, Any]:
        return {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": "data-0", "namespace": "x"},
            "spec": {"resources": {"requests": {"storage": size}}},
        }

    wanted = rendered(claim("10.3Gi"))
    stored = {**wanted.body, "spec": claim("11059540787200m")["spec"]}
    assert difference(wanted, ObjectView("u", "1", wanted.digest, stored)) == ""
    grown = {**wanted.body, "spec": claim("11Gi")["spec"]}
    why = difference(wanted, ObjectView("u", "1", wanted.digest, grown))
    assert why == "spec.resources.requests.storage was changed by another writer"


def service(**spec: Any) -> Rendered:
    metadata = {"name": "c-storage", "namespace": "x"}
    return rendered({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec})


def stored(wanted: Rendered, **spec: Any) -> tuple[ObjectView, Override]:
    """The object with other values, and what is remembered of the write after which it had them."""
    body = {**wanted.body, "spec": {**wanted.body["spec"], **spec}}
    known = Override("u", wanted.digest, overrides(wanted.body, body), cluster.NOW)
    return ObjectView("u", "1", wanted.digest, body), known


def test_what_the_last_write_has_become_is_no_change() -> None:
    wanted = service(a=1, b=2, c=[1, 2])
    live, known = stored(wanted, a=3, c=[1])
    assert [path for path, _ in known.fields] == ["spec.a", "spec.c"]
    assert difference(wanted, live) == "spec.a was changed by another writer"
    assert difference(wanted, live, known) == ""
    assert difference(service(a=1, b=2), live, known) == "it differs from the specification"
    assert difference(wanted, live, known._replace(uid="another")) == "spec.a was changed by another writer"
    for other in ({"a": 3}, {"a": 4, "c": [1]}, {"a": 3, "b": 0, "c": [1]}):
        assert difference(wanted, stored(wanted, **other)[0], known) == "spec.a was changed by another writer"


def test_a_field_that_is_not_stored_as_it_was_written_is_named_and_holds_up_nothing() -> None:
    wanted = service(a=1, b=2, c=3, d=4, e=5)
    live, known = stored(wanted, a=0, b=0, c=0, d=0, e=0)
    view = cluster.kube()
    view = replace(view, objects={**view.objects, wanted.key: live})
    seen = replace(cluster.facts(view), overridden={wanted.key: known})
    decision = decide(seen, (*cluster.rendered(), wanted))
    assert not [one for one in decision.actions if isinstance(one, ApplyObject)]
    by_type = {one.type: one for one in conditions(seen, decision, health_of(seen), (), (), 1)}
    degraded = by_type["Degraded"]
    assert (degraded.status, degraded.reason) == ("False", "OtherValues"), "it may be wanted"
    assert degraded.message.startswith("an admission webhook, or the API server itself, stores other values")
    assert degraded.message.endswith("Service c-storage: spec.a, spec.b, spec.c, 2 more")
    assert (by_type["Progressing"].status, by_type["Valid"].status) == ("False", "True")
