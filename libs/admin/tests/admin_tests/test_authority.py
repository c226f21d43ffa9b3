"""Certificates that cannot be made, and those that are refused."""

from __future__ import annotations

import pytest

from waltz_admin.authority import TlsMaterialError, describe, issue, lacks_of_key, make_authority, refuses

NOW, DAY = 1_800_000_000.0, 86_400.0


def test_a_name_that_no_certificate_can_have_is_an_error_that_names_it() -> None:
    authority = make_authority("a", NOW, DAY)
    with pytest.raises(TlsMaterialError, match="is neither a DNS name"):
        issue(authority, "server", ("w.example.com", "b\u00fccher.example"), NOW, DAY)


def test_names_and_addresses_are_in_the_certificate() -> None:
    made = issue(make_authority("a", NOW, DAY), "server", ("w.example.com", "10.0.0.9", "::1"), NOW, DAY)
    assert describe(made.certificate, "it").names == ("10.0.0.9", "::1", "w.example.com")


def test_who_is_signed_by_nobody_that_is_trusted_is_refused() -> None:
    one, other = make_authority("a", NOW, DAY), make_authority("b", NOW, DAY)
    shown = issue(one, "server", ("s",), NOW, DAY).certificate
    assert refuses(other.certificate, shown)
    assert not refuses(one.certificate, shown)
    assert not refuses(other.certificate + one.certificate, shown)
    assert not refuses(other.certificate, shown + issue(other, "x", ("x",), NOW, DAY).certificate)
    assert not refuses(shown, shown)


def test_nobody_is_refused_where_nothing_can_be_read() -> None:
    shown = issue(make_authority("a", NOW, DAY), "server", ("s",), NOW, DAY).certificate
    assert not refuses(b"", shown)
    assert not refuses(shown, b"no certificate")


def test_a_key_belongs_to_its_certificate_alone() -> None:
    one, other = make_authority("a", NOW, DAY), make_authority("b", NOW, DAY)
    assert lacks_of_key(one.key, one.certificate) == ""
    assert lacks_of_key(other.key, one.certificate) == "belongs to the certificate"
    assert lacks_of_key(b"", one.certificate) == "can be read"
    assert lacks_of_key(one.key, b"") == ""
    of_a_form_that_openssl_may_know = one.key.replace(b"\n", b"\nMIIx", 1)
    assert lacks_of_key(of_a_form_that_openssl_may_know, one.certificate) == ""
