"""Certificates that cannot be made."""

from __future__ import annotations

import pytest

from waltz_admin.authority import TlsMaterialError, describe, issue, make_authority

NOW, DAY = 1_800_000_000.0, 86_400.0


def test_a_name_that_no_certificate_can_have_is_an_error_that_names_it() -> None:
    authority = make_authority("a", NOW, DAY)
    with pytest.raises(TlsMaterialError, match="is neither a DNS name"):
        issue(authority, "server", ("w.example.com", "b\u00fccher.example"), NOW, DAY)


def test_names_and_addresses_are_in_the_certificate() -> None:
    made = issue(make_authority("a", NOW, DAY), "server", ("w.example.com", "10.0.0.9", "::1"), NOW, DAY)
    assert describe(made.certificate, "it").names == ("10.0.0.9", "::1", "w.example.com")
