"""What must be made again, and in which order, so that no process ever meets a certificate it cannot check. Pure.

Certificates are renewed at two thirds of their life. A new authority comes in steps; before each of them every pod has to have taken
over the one before (``settled``: all pods run with the present Secrets):

1. *announce*: the next authority is made and stands in every trust store beside the current one, which still signs;
2. *switch*: the next one signs; the one before stays trusted; all certificates are signed again;
3. *retire*: only the current one is trusted.

The step is read from the Secrets themselves: nothing else remembers it, so a crash between any two writes loses nothing.
"""

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from waltz_operator.tls.authority import CertificateInfo

RENEW_AT = 2 / 3
DAY_SECONDS = 86_400.0
AUTHORITY_SECONDS = 10 * 365 * DAY_SECONDS
CERTIFICATE_SECONDS = 90 * DAY_SECONDS


def due(info: CertificateInfo, now: float, renew_at: float = RENEW_AT) -> bool:
    """True from ``renew_at`` of the certificate's life on."""
    return now >= info.not_before + renew_at * (info.not_after - info.not_before)


class Step(enum.Enum):
    """What to do next; at most one per reconcile."""

    NOTHING = "nothing"
    MAKE_AUTHORITY = "make the first authority"
    ANNOUNCE_AUTHORITY = "trust a new authority beside the old one"
    SWITCH_AUTHORITY = "sign with the new authority"
    RETIRE_AUTHORITY = "trust the new authority only"
    SIGN_CERTIFICATES = "sign certificates"


@dataclass(frozen=True, slots=True)
class Decision:
    """``roles``: whose certificates to sign. ``reason`` is for an Event."""

    step: Step
    roles: tuple[str, ...] = ()
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Authorities:
    """``current`` signs; ``next`` is announced; ``previous`` is still trusted. At most one of the last two is there."""

    current: CertificateInfo
    next: CertificateInfo | None = None
    previous: CertificateInfo | None = None

    @property
    def trusted(self) -> frozenset[bytes]:
        """Key ids of all that must stand in trust stores."""
        return frozenset(one.key_id for one in (self.current, self.next, self.previous) if one is not None)


@dataclass(frozen=True, slots=True)
class Certified:
    """A role's certificate and the authorities its Secret trusts (their key ids)."""

    info: CertificateInfo
    trusts: frozenset[bytes]


def decide(
    authorities: Authorities | None,
    certificates: Mapping[str, Certified],
    wanted: Mapping[str, Sequence[str]],
    now: float,
    *,
    settled: bool,
) -> Decision:
    """The next step; ``wanted``: the DNS names each role's certificate needs.

    A certificate that is missing, lacks a name or trusts other authorities is signed at once, whatever else goes on.
    """
    if authorities is None:
        return Decision(Step.MAKE_AUTHORITY, reason="there is no authority")
    lacking = tuple(
        role
        for role, names in wanted.items()
        if role not in certificates or not set(names) <= set(certificates[role].info.names)
    )
    if lacking:
        return Decision(Step.SIGN_CERTIFICATES, lacking, "there is none for all names")
    stale = tuple(role for role in wanted if certificates[role].trusts != authorities.trusted)
    if stale:
        return Decision(Step.SIGN_CERTIFICATES, stale, "the trusted authorities changed")
    if authorities.previous is not None:
        foreign = tuple(
            role for role in wanted if certificates[role].info.issuer_key_id != authorities.current.key_id
        )
        if foreign:
            return Decision(Step.SIGN_CERTIFICATES, foreign, "the new authority is trusted everywhere")
        if settled:
            return Decision(Step.RETIRE_AUTHORITY, reason="the old authority is not needed any more")
    elif authorities.next is not None:
        if settled:
            return Decision(Step.SWITCH_AUTHORITY, reason="the new authority is trusted everywhere")
    elif due(authorities.current, now):
        return Decision(Step.ANNOUNCE_AUTHORITY, reason="the authority is due for renewal")
    old = tuple(role for role in wanted if due(certificates[role].info, now))
    if old:
        return Decision(Step.SIGN_CERTIFICATES, old, "two thirds of its life are over")
    return Decision(Step.NOTHING)
