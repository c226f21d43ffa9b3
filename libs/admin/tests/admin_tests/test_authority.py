"""Certificates that cannot be made, and those that are refused."""

from __future__ import annotations

import pytest

from waltz_admin.authority import (
    KeyPair,
    TlsMaterialError,
    can_sign,
    describe,
    issue,
    key_id,
    lacks_of_key,
    make_authority,
    refuses,
    split,
)
from waltz_testkit.odd_certificates import not_supported

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


SIGNER = make_authority("a", NOW, DAY)
ISSUED = issue(SIGNER, "x", ("odd",), NOW, DAY)
NOT_SUPPORTED = not_supported(ISSUED.certificate, "odd")


@pytest.mark.parametrize(
    ("what", "named"),
    [
        ("curve", "1.2.840.10045.3.1.6"),
        ("extension twice", "2.5.29.14"),
        ("name", "not supported types"),
    ],
)
def test_a_certificate_that_only_others_can_read_is_an_error_that_says_why(what: str, named: str) -> None:
    odd = NOT_SUPPORTED[what]
    with pytest.raises(TlsMaterialError, match=f"file: a certificate that is not supported: .*{named}"):
        describe(odd, "file")
    assert split(SIGNER.certificate + odd) == (*split(SIGNER.certificate), *split(odd))
    assert can_sign(ISSUED, NOW)
    assert not can_sign(KeyPair(odd, ISSUED.key), NOW)
    assert not refuses(odd, odd)
    assert lacks_of_key(ISSUED.key, odd) == ""


def test_every_certificate_has_an_id_and_the_same_key_the_same() -> None:
    assert key_id(SIGNER.certificate) == describe(ISSUED.certificate, "it").issuer_key_id
    ids = {key_id(one) for one in (SIGNER.certificate, ISSUED.certificate, *NOT_SUPPORTED.values())}
    assert len(ids) == 2 + len(NOT_SUPPORTED)
