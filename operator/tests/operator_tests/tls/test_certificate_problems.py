"""Certificates that processes cannot use as the Secrets hold them, and what is said of them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID

from operator_tests.resources.clusters import SECRETS, Spec, cluster
from waltz_admin.authority import KeyPair, issue, make_authority
from waltz_operator.api.cluster import WaltzCluster
from waltz_operator.api.topology import tls_roles
from waltz_operator.model.certificate_problems import CertificateProblem
from waltz_operator.plan.certificate_problems import certificate_problems
from waltz_operator.plan.certificates import certificate_steps, held_certificates
from waltz_operator.tls.secrets import TlsSecrets, material_digests
from waltz_testkit.odd_certificates import not_supported

NOW = 1_800_000_000.0
DAY = 86_400.0
LIFE = 90 * DAY
CERT_MANAGER: Spec = {"tls": {"mode": "CertManager", "issuerRef": {"name": "ca"}}}
OWN: Spec = {"tls": {"mode": "Secret", "secrets": SECRETS}}
AUTHORITY = make_authority("a", NOW, 10 * LIFE)
NOT_SUPPORTED = not_supported(issue(AUTHORITY, "x", ("odd",), NOW, LIFE).certificate, "odd")


def made_of(pair: KeyPair, *trusted: KeyPair) -> dict[str, bytes]:
    bundle = b"".join(one.certificate for one in trusted)
    return {"tls.crt": pair.certificate, "tls.key": pair.key, "ca.crt": bundle}


def secret(role: str, signer: KeyPair = AUTHORITY, *trusted: KeyPair) -> dict[str, bytes]:
    """What a Secret holds whose certificate was issued now."""
    return made_of(issue(signer, role, (role,), NOW, LIFE), *(trusted or (signer,)))


def problems(
    of: WaltzCluster, changes: Mapping[str, Mapping[str, bytes] | None] | None = None, *, now: float = NOW
) -> tuple[CertificateProblem, ...]:
    """With the Secrets of all roles, but for these; None for one that is not there."""
    held: dict[str, Mapping[str, bytes]] = {one.role: secret(one.role) for one in tls_roles(of)}
    gone = {role for role, data in (changes or {}).items() if data is None}
    held |= {role: data or {} for role, data in (changes or {}).items()}
    return certificate_problems(of, TlsSecrets(held, {role: "1" for role in held if role not in gone}), now)


ENCRYPTED = load_pem_private_key(AUTHORITY.key, None).private_bytes(
    Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret")
)


@pytest.mark.parametrize("spec", [{}, CERT_MANAGER, OWN], ids=["own authority", "cert-manager", "given"])
def test_secrets_that_are_whole_have_none(spec: Spec) -> None:
    assert problems(cluster(spec)) == ()


def test_without_tls_there_are_none() -> None:
    assert certificate_problems(cluster({"tls": {"mode": "Disabled"}}), TlsSecrets(), NOW) == ()


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (None, "is missing"),
        ({}, "has no tls.crt and no tls.key and no ca.crt"),
        ({**secret("x"), "ca.crt": b""}, "has no ca.crt"),
        ({**secret("x"), "tls.crt": b"?"}, "cannot be read: tls.crt: no certificate in PEM form"),
        ({**secret("x"), "ca.crt": b"?"}, "has no certificate in ca.crt that can be read"),
        ({**secret("x"), "tls.key": b"?"}, "has no private key in tls.key that can be read"),
        ({**secret("x"), "tls.key": ENCRYPTED}, "has no private key in tls.key that needs no password"),
        (
            {**secret("x"), "tls.key": AUTHORITY.key},
            "has no private key in tls.key that belongs to the certificate",
        ),
    ],
)
def test_the_secret_and_what_it_lacks_are_named(data: Mapping[str, bytes] | None, said: str) -> None:
    (one,) = problems(cluster(OWN), {"storage": data})
    assert (one.role, one.reason) == ("storage", "CertificateMissing")
    assert one.text.startswith(f"Secret {SECRETS['storage']} {said}; ")


@pytest.mark.parametrize("odd", NOT_SUPPORTED)
def test_a_certificate_that_is_not_supported_is_named_with_what_is_not(odd: str) -> None:
    data = {**secret("storage"), "tls.crt": NOT_SUPPORTED[odd]}
    (one,) = problems(cluster(OWN), {"storage": data})
    assert (one.role, one.reason) == ("storage", "CertificateMissing")
    assert one.text.startswith(
        f"Secret {SECRETS['storage']} cannot be read: tls.crt: a certificate that is not supp"
    )
    assert held_certificates(TlsSecrets({"storage": data}, {"storage": "1"})) == {}
    assert material_digests(data) is not None


@pytest.mark.parametrize("odd", NOT_SUPPORTED)
def test_an_authority_that_is_not_supported_is_one_of_the_bundle_and_stops_nothing(odd: str) -> None:
    before = secret("storage")
    data = {**before, "ca.crt": before["ca.crt"] + NOT_SUPPORTED[odd]}
    assert problems(cluster(OWN), {"storage": data}) == ()
    found, without = material_digests(data), material_digests(before)
    assert found is not None
    assert without is not None
    assert found.authorities not in (found.material, without.authorities)


@pytest.mark.parametrize("odd", NOT_SUPPORTED)
def test_what_is_not_supported_in_a_secret_of_the_operator_is_made_again(odd: str) -> None:
    own = {role.role: secret(role.role) for role in tls_roles(cluster())}
    versions = dict.fromkeys((*own, "ledger-tls-ca"), "1")
    ca = {"tls.crt": AUTHORITY.certificate, "tls.key": AUTHORITY.key}
    for role, key in (("storage", "tls.crt"), ("storage", "ca.crt"), ("ca", "tls.crt"), ("ca", "next.crt")):
        held = {**own, "ledger-tls-ca": ca}
        name = "ledger-tls-ca" if role == "ca" else role
        held[name] = {**held[name], key: NOT_SUPPORTED[odd]}
        steps = certificate_steps(cluster(), TlsSecrets(held, versions), NOW, settled=False)
        assert steps or key == "next.crt"


def test_who_writes_it_is_named() -> None:
    (managed,) = problems(cluster(CERT_MANAGER), {"server": None})
    assert "`kubectl describe certificate ledger-tls-server`" in managed.text
    (given,) = problems(cluster(OWN), {"server": None})
    assert given.text.endswith("it is yours to write (spec.tls.secrets.server)")
    (paused,) = problems(cluster({"paused": True}), {"server": None})
    assert paused.text == (
        "Secret ledger-tls-server is missing, or is not this cluster's; the operator writes none while spec.paused"
    )


def test_every_role_has_its_own() -> None:
    found = problems(cluster(CERT_MANAGER), {"server": None, "storage": None, "client": None})
    assert [one.role for one in found] == ["server", "storage", "client"]


# ---- authorities that others do not trust

OTHER = make_authority("b", NOW, 10 * LIFE)


def test_a_certificate_that_another_authority_has_issued_anew_is_found() -> None:
    """What cert-manager does when the names of one Certificate change after the issuer's authority did."""
    found = problems(cluster(CERT_MANAGER), {"server": secret("server", OTHER)})
    assert [(one.role, one.reason) for one in found] == [
        ("storage", "AuthorityNotTrusted"),
        ("operator", "AuthorityNotTrusted"),
        ("client", "AuthorityNotTrusted"),
    ]
    text = found[0].text
    assert text.startswith("ca.crt in Secret ledger-tls-storage does not have the authority that has signed")
    assert "certificate in Secret ledger-tls-server," in text
    assert text.endswith(
        "`cmctl renew -n demo ledger-tls-server ledger-tls-storage ledger-tls-operator ledger-tls-client`"
    )


def test_it_is_enough_that_one_side_is_not_trusted() -> None:
    found = problems(cluster(OWN), {"server": secret("server", OTHER, OTHER, AUTHORITY)})
    assert [one.role for one in found] == ["storage", "operator"]
    assert found[0].text.startswith(f"ca.crt in Secret {SECRETS['storage']} does")
    assert found[0].text.endswith("; ca.crt of both needs the authorities of both")
    both = {role: secret(role, AUTHORITY, AUTHORITY, OTHER) for role in ("storage", "operator")} | {
        "server": secret("server", OTHER, OTHER, AUTHORITY)
    }
    assert problems(cluster(OWN), both) == ()


def test_all_of_another_authority_trust_one_another() -> None:
    of = cluster(CERT_MANAGER)
    assert problems(of, {one.role: secret(one.role, OTHER) for one in tls_roles(of)}) == ()


def test_who_is_not_verified_is_not_refused() -> None:
    """Servers that take connections from anybody; storage nodes always verify."""
    trusts_both = secret("operator", OTHER, OTHER, AUTHORITY)
    closed, opened = cluster(OWN), cluster({"tls": {**OWN["tls"], "clientAuthentication": "None"}})
    storage = secret("storage", AUTHORITY, AUTHORITY, OTHER)
    assert [one.role for one in problems(closed, {"operator": trusts_both, "storage": storage})] == [
        "operator"
    ]
    assert problems(opened, {"operator": trusts_both, "storage": storage}) == ()
    assert [one.role for one in problems(opened, {"operator": trusts_both})] == ["operator"]


def test_a_chain_ends_at_who_is_trusted() -> None:
    """An intermediate authority comes with the certificate; and who trusts the certificate itself needs no
    authority."""
    pair = issue(AUTHORITY, "server", ("server",), NOW, LIFE)
    stranger = issue(OTHER, "server", ("server",), NOW, LIFE)
    chain = KeyPair(stranger.certificate + pair.certificate, stranger.key)  # as if `pair` had signed it
    assert problems(cluster(OWN), {"server": made_of(chain, AUTHORITY)}) == ()
    pinned = {role: secret(role, AUTHORITY, AUTHORITY, stranger) for role in ("storage", "operator")}
    assert problems(cluster(OWN), {"server": made_of(stranger, AUTHORITY), **pinned}) == ()


def test_an_authority_with_the_same_key_is_the_same_one() -> None:
    """Its certificate is renewed: what it has signed before and after is trusted by who has either."""
    old, key = (
        x509.load_pem_x509_certificate(AUTHORITY.certificate),
        load_pem_private_key(AUTHORITY.key, None),
    )
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    made = x509.CertificateBuilder(
        old.issuer, old.subject, old.public_key(), 7, extensions=list(old.extensions)
    )
    made = made.not_valid_before(old.not_valid_before_utc).not_valid_after(datetime(2100, 1, 1, tzinfo=UTC))
    renewed = KeyPair(made.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM), AUTHORITY.key)
    assert renewed.certificate != AUTHORITY.certificate
    assert problems(cluster(OWN), {"server": secret("server", renewed)}) == ()


def test_a_missing_secret_is_named_once() -> None:
    changes = {"server": secret("server", OTHER), "storage": None}
    found = problems(cluster(OWN), changes)
    assert [(one.role, one.reason) for one in found] == [
        ("storage", "CertificateMissing"),
        ("operator", "AuthorityNotTrusted"),
    ]


# ---- certificates that nobody renews


@pytest.mark.parametrize(
    "spec", [{"paused": True}, CERT_MANAGER, OWN], ids=["paused", "cert-manager", "given"]
)
def test_what_was_not_renewed_is_reported_before_it_ends(spec: Spec) -> None:
    of = cluster(spec)
    assert problems(of, now=NOW + 74 * DAY) == ()  # 5/6 are 75 days
    found = problems(of, now=NOW + 76 * DAY)
    assert {(one.role, one.reason, one.holds) for one in found} == {
        (one.role, "CertificateEndsSoon", False) for one in tls_roles(of)
    }
    assert found[0].text.startswith(
        f"the certificate in Secret {tls_roles(of)[0].secret} ends at 2027-04-15T08:00:00Z, and was not renewed; "
    )


def test_pods_are_left_as_they_are_once_it_has_ended() -> None:
    (one,) = problems(
        cluster(OWN),
        {"server": secret("server")} | dict.fromkeys(("storage", "operator"), LONG),
        now=NOW + LIFE,
    )
    assert (one.reason, one.holds) == ("CertificateEndsSoon", True)
    assert "has ended at" in one.text


def test_a_long_one_is_not_late_years_before() -> None:
    changes = dict.fromkeys(("server", "storage", "operator"), LONG)
    assert problems(cluster(OWN), changes, now=NOW + 9.9 * LIFE - 31 * DAY) == ()
    assert len(problems(cluster(OWN), changes, now=NOW + 9.9 * LIFE - 29 * DAY)) == 3


LONG = made_of(issue(AUTHORITY, "long", ("long",), NOW, 9.9 * LIFE), AUTHORITY)


def test_one_that_is_not_valid_yet_is_refused_as_well() -> None:
    (one,) = problems(
        cluster(OWN), {"server": made_of(issue(AUTHORITY, "s", ("s",), NOW + DAY, LIFE), AUTHORITY)}
    )
    assert (one.role, one.reason, one.holds) == ("server", "CertificateUnsuitable", True)
    assert f"Secret {SECRETS['server']} is not valid before 2027-01-16T07:55:00Z, so its peers" in one.text


# ---- certificates for another use

SERVER, CLIENT = ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH


def only(*uses: x509.ObjectIdentifier) -> dict[str, bytes]:
    """A certificate that was issued for these uses; without the extension when there are none."""
    pair = issue(AUTHORITY, "x", ("x",), NOW, LIFE)
    old = x509.load_pem_x509_certificate(pair.certificate)
    key = load_pem_private_key(AUTHORITY.key, None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    kept = [one for one in old.extensions if not isinstance(one.value, x509.ExtendedKeyUsage)]
    made = x509.CertificateBuilder(old.issuer, old.subject, old.public_key(), 7, extensions=kept)
    made = made.not_valid_before(old.not_valid_before_utc).not_valid_after(old.not_valid_after_utc)
    if uses:
        made = made.add_extension(x509.ExtendedKeyUsage(uses), critical=False)
    certificate = made.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM)
    return made_of(KeyPair(certificate, pair.key), AUTHORITY)


@pytest.mark.parametrize(
    ("role", "uses", "lacks"),
    [
        ("server", (SERVER,), "client"),
        ("server", (CLIENT,), "server"),
        ("storage", (CLIENT,), "server"),
        ("storage", (SERVER,), ""),
        ("operator", (SERVER,), "client"),
        ("operator", (CLIENT,), ""),
        ("server", (SERVER, CLIENT), ""),
        ("server", (ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE,), ""),
        ("server", (), ""),
    ],
)
def test_what_it_was_not_issued_for_is_named(
    role: str, uses: tuple[x509.ObjectIdentifier, ...], lacks: str
) -> None:
    found = problems(cluster(OWN), {role: only(*uses)})
    assert [one.reason for one in found] == (["CertificateUnsuitable"] if lacks else [])
    for one in found:
        assert f"Secret {SECRETS[role]} is not issued for {lacks} authentication (" in one.text


def test_storage_nodes_are_clients_of_a_zookeeper_with_tls() -> None:
    of = cluster({"zookeeper": {"managed": {"tls": "Enabled"}}})
    (one,) = problems(of, {"storage": only(SERVER)})
    assert one.role == "storage"
    (both,) = problems(of, {"zookeeper": only(ExtendedKeyUsageOID.CODE_SIGNING)})
    assert "not issued for server authentication and client authentication (" in both.text
