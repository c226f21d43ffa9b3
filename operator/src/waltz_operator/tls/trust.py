"""Which authorities a cluster has: read from the authority's Secret, and from what the Secrets of the roles
trust. Pure.

The authority's Secret has `tls.crt` and `tls.key`; while it is replaced also `next.crt` and
`next.key`, or `previous.crt` (a bundle). It may be deleted, lose its key or be overwritten by somebody at
any moment, while all processes continue with what the lost authority has signed. Its certificate is not lost
with it: it is in `ca.crt` of every role, and so do the others that a rotation had made trusted. All of
them stay trusted until a new authority has replaced them, since a pod may still run with a certificate of
any.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from waltz_admin.authority import KeyPair, TlsMaterialError, can_sign, describe, split

Data = Mapping[str, bytes]
ById = dict[bytes, bytes]
"""Certificates (PEM) by the id of their key, in the order in which they were found."""


@dataclass(frozen=True, slots=True)
class Trust:
    """Authorities, PEM. `signer`: `current` with its key; None when it cannot sign. `next` can, if
    there is one."""

    current: bytes
    signer: KeyPair | None
    next: KeyPair | None
    previous: tuple[bytes, ...]
    listed: bool = True
    """Whether the authority's Secret names all that the roles trust."""

    @property
    def bundle(self) -> bytes:
        """`ca.crt` for everybody."""
        following = b"" if self.next is None else self.next.certificate
        return b"".join((self.current, following, *self.previous))


def read_trust(ca: Data, roles: Iterable[Data], now: float) -> Trust | None:
    """What there is; None when there is no authority at all. Reading is total: what cannot be read counts as
    absent."""
    signer, following = _pair(ca, "tls", now), _pair(ca, "next", now)
    own = split(ca.get("tls.crt", b""))[:1]
    listed = by_key_id((*own, *split(ca.get("previous.crt", b""))))
    known = listed.keys() | _only(following).keys()
    trusted: ById = {}
    used: ById = {}
    for role in roles:
        trusts = by_key_id(split(role.get("ca.crt", b"")))
        issuer = _issuer(role)
        trusted |= trusts
        used |= {key: one for key, one in trusts.items() if key == issuer}
    if signer is not None and used.keys() <= known:
        if _only(following).keys() == _only(signer).keys():
            following = None
        rest = _without(listed, signer, following)
        return Trust(signer.certificate, signer, following, rest)
    if signer is not None:
        # Somebody has put another authority in the place of the one that signed what is in use: it has to
        # come in steps too.
        following = signer
    lost = _without(listed | used | trusted, following)
    if lost:
        return Trust(lost[0], None, following, lost[1:], bool(own) and trusted.keys() <= known)
    return None if following is None else Trust(following.certificate, following, None, ())


def by_key_id(certificates: Iterable[bytes]) -> ById:
    """Each once, but those that cannot be read."""
    found: ById = {}
    for one in certificates:
        try:
            found[describe(one, "an authority").key_id] = one
        except TlsMaterialError:
            continue
    return found


def _issuer(role: Data) -> bytes | None:
    try:
        return describe(role.get("tls.crt", b""), "the certificate").issuer_key_id
    except TlsMaterialError:
        return None


def _pair(ca: Data, name: str, now: float) -> KeyPair | None:
    certificates, key = split(ca.get(f"{name}.crt", b"")), ca.get(f"{name}.key", b"")
    pair = KeyPair(certificates[0], key) if certificates else None
    return pair if pair is not None and can_sign(pair, now) else None


def _only(pair: KeyPair | None) -> ById:
    return {} if pair is None else by_key_id((pair.certificate,))


def _without(certificates: ById, *pairs: KeyPair | None) -> tuple[bytes, ...]:
    left_out = {key for pair in pairs for key in _only(pair)}
    return tuple(one for key, one in certificates.items() if key not in left_out)
