"""What must be made again, and in which order, so that no process ever meets a certificate it cannot check.
Pure.

Certificates are renewed at two thirds of their life. A new authority comes in steps; before each of them
every pod has to have taken over the one before (`settled`: all pods run with the present Secrets):

1. *announce*: the next authority is made and is in every trust store alongside the current one, which still
   signs;
2. *switch*: the next one signs; the one before stays trusted; all certificates are signed again;
3. *retire*: only the current one is trusted.

What was made while the clock was ahead is valid for nobody until that time comes: such a certificate counts
as one that is missing, such an authority as one that cannot sign.

An authority that can no longer sign (its Secret or key is lost, or it has expired) is replaced in the same
steps, though it cannot take part in them: *replace* puts it down as what it is, a certificate that stays
trusted, with the next authority alongside it; roles keep their certificates and only trust more; then
*switch* and *retire* as above. Certificates that are due wait for the switch.

The step is read from the Secrets themselves: nothing else remembers it, so a crash between any two writes
loses nothing.
"""

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from waltz_admin.authority import CertificateInfo

RENEW_AT = 2 / 3
DAY_SECONDS = 86_400.0
AUTHORITY_SECONDS = 10 * 365 * DAY_SECONDS
CERTIFICATE_SECONDS = 90 * DAY_SECONDS


def due(info: CertificateInfo, now: float, renew_at: float = RENEW_AT) -> bool:
    """True from `renew_at` of the certificate's life on."""
    return now >= info.not_before + renew_at * (info.not_after - info.not_before)


class Step(enum.Enum):
    """What to do next; at most one per reconcile."""

    NOTHING = "nothing"
    MAKE_AUTHORITY = "make the first authority"
    REPLACE_AUTHORITY = "trust a new authority alongside the lost one"
    ANNOUNCE_AUTHORITY = "trust a new authority alongside the old one"
    SWITCH_AUTHORITY = "sign with the new authority"
    RETIRE_AUTHORITY = "trust the new authority only"
    SIGN_CERTIFICATES = "sign certificates"
    SIGN_WITH_NEXT = "sign certificates with the new authority, before it is trusted everywhere"
    TRUST_AUTHORITIES = "trust the authorities of now, with the same certificates"


@dataclass(frozen=True, slots=True)
class Decision:
    """`roles`: whose Secrets to write. `reason` is for an Event."""

    step: Step
    roles: tuple[str, ...] = ()
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Authorities:
    """`current` signs; `next` is announced; `previous` are still trusted. At most one of the last two
    is there while `current` signs."""

    current: CertificateInfo
    next: CertificateInfo | None = None
    previous: tuple[CertificateInfo, ...] = ()
    signs: bool = True
    """False: the key of `current` is lost, it has expired, or is not valid yet."""
    listed: bool = True
    """False: roles need an authority that the authority's Secret does not name."""

    @property
    def trusted(self) -> frozenset[bytes]:
        """Key ids of all that must be in trust stores."""
        following = () if self.next is None else (self.next,)
        return frozenset(one.key_id for one in (self.current, *following, *self.previous))


@dataclass(frozen=True, slots=True)
class Certified:
    """A role's certificate and the authorities its Secret trusts (their key ids)."""

    info: CertificateInfo
    trusts: frozenset[bytes]


_NOTHING = Decision(Step.NOTHING)
_SWITCH = Decision(Step.SWITCH_AUTHORITY, reason="the new authority is trusted everywhere")


def decide(
    authorities: Authorities | None,
    certificates: Mapping[str, Certified],
    wanted: Mapping[str, Sequence[str]],
    now: float,
    *,
    settled: bool,
) -> Decision:
    """The next step; `wanted`: the DNS names each role's certificate needs.

    A certificate that is missing, not valid yet, lacks a name or trusts other authorities is signed at once,
    whatever else continues, as long as the current authority can sign.
    """
    if authorities is None:
        return Decision(Step.MAKE_AUTHORITY, reason="there is no authority")
    if not authorities.signs:
        return _without_signer(authorities, certificates, wanted, now, settled=settled)
    lacking = tuple(
        role
        for role, names in wanted.items()
        if role not in certificates
        or not set(names) <= set(certificates[role].info.names)
        or certificates[role].info.not_before > now
    )
    if lacking:
        return Decision(Step.SIGN_CERTIFICATES, lacking, "there is none for all names that is valid")
    stale = tuple(role for role in wanted if certificates[role].trusts != authorities.trusted)
    if stale:
        return Decision(Step.SIGN_CERTIFICATES, stale, "the trusted authorities changed")
    if authorities.previous:
        foreign = tuple(
            role for role in wanted if certificates[role].info.issuer_key_id != authorities.current.key_id
        )
        if foreign:
            return Decision(Step.SIGN_CERTIFICATES, foreign, "the new authority is trusted everywhere")
        if settled:
            return Decision(Step.RETIRE_AUTHORITY, reason="the old authority is no longer needed")
    elif authorities.next is not None:
        if settled:
            return _SWITCH
    elif due(authorities.current, now):
        return Decision(Step.ANNOUNCE_AUTHORITY, reason="the authority is due for renewal")
    old = tuple(role for role in wanted if due(certificates[role].info, now))
    if old:
        return Decision(Step.SIGN_CERTIFICATES, old, "two thirds of its life are over")
    return _NOTHING


def renewal(authorities: Authorities | None, certificates: Mapping[str, Certified], now: float) -> Decision:
    """What is renewed while the specification cannot be worked on: certificates that are due, by the present
    authority. That neither makes an authority nor replaces one, so no pod has to restart."""
    if authorities is None or not authorities.signs:
        return _NOTHING
    old = tuple(role for role, one in certificates.items() if due(one.info, now))
    return Decision(Step.SIGN_CERTIFICATES, old, "two thirds of its life are over") if old else _NOTHING


def _without_signer(
    authorities: Authorities,
    certificates: Mapping[str, Certified],
    wanted: Mapping[str, Sequence[str]],
    now: float,
    *,
    settled: bool,
) -> Decision:
    """The current authority cannot sign: what it has signed stays in use until everybody trusts the next
    one."""
    if authorities.next is None or not authorities.listed:
        return Decision(Step.REPLACE_AUTHORITY, reason="the authority of the certificates can no longer sign")
    useless = tuple(
        role
        for role in wanted
        if role not in certificates
        or not certificates[role].info.not_before <= now < certificates[role].info.not_after
    )
    stale = tuple(
        role for role in wanted if role not in useless and certificates[role].trusts != authorities.trusted
    )
    if stale:
        return Decision(Step.TRUST_AUTHORITIES, stale, "the trusted authorities changed")
    # A role without a valid certificate gets one of the next authority, since nothing else can sign: pods
    # that have not restarted yet refuse it, but it has none that they would take. One that only lacks a name
    # serves under its others, so it waits for the switch.
    if useless:
        return Decision(Step.SIGN_WITH_NEXT, useless, "there is none that is valid")
    return _SWITCH if settled else _NOTHING
