"""What counts as a change by another writer. An object that seems to be changed is applied in every pass, and
nothing else is done meanwhile: no migration begins, no authority is renewed."""

from __future__ import annotations

from typing import Any

import pytest

from waltz_operator.model.rendered import rendered
from waltz_operator.model.snapshot import ObjectView
from waltz_operator.plan.diff import difference, lost

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
