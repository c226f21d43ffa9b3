"""Every attack by name, and the ports it is tried on."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from tests.integration.hostile import (
    attacks_frames,
    attacks_http,
    attacks_identity,
    attacks_slow,
    attacks_tls,
    attacks_work,
)
from tests.integration.hostile.wires import Target

Run = Callable[[Target], Awaitable[None]]
FRAMED = ("client", "storage", "admin")


@dataclass(frozen=True)
class Attack:
    """`run` against ports of `kinds`. `named`: the attacked process must name the attacker in its log."""

    run: Run
    kinds: tuple[str, ...]
    named: bool = False
    seconds: float = 1.0
    heavy: bool = False
    """Takes more than a second: the tests try it on one port with TLS and on another one without."""
    needs_tls: bool | None = None
    """True: only on a TLS port; False: only on a plaintext one; None: on both."""

    @property
    def name(self) -> str:
        return self.run.__name__


ALL = (
    Attack(attacks_frames.garbage, FRAMED, named=True),
    Attack(attacks_frames.malformed, FRAMED, named=True, heavy=True),
    Attack(attacks_frames.truncated, FRAMED, named=True),
    Attack(attacks_frames.oversized, FRAMED, named=True),
    Attack(attacks_frames.stranger_sessions, ("storage",), named=True),
    Attack(attacks_frames.stranger_administration, ("admin",), named=True),
    Attack(attacks_frames.replayed, ("storage",)),
    Attack(attacks_frames.highest_fence, ("storage",)),
    Attack(attacks_frames.replayed_by_client, ("client",)),
    Attack(attacks_identity.impostor, ("client",), named=True, seconds=3.0),
    Attack(attacks_identity.future_flushes, ("client",)),
    Attack(attacks_slow.silent, FRAMED, heavy=True),
    Attack(attacks_slow.silent_after_tls, FRAMED, needs_tls=True, heavy=True),
    Attack(attacks_slow.drip_hello, FRAMED, heavy=True),
    Attack(attacks_slow.drip_frames, FRAMED, seconds=2.0, heavy=True),
    Attack(attacks_slow.half_frames, FRAMED, seconds=2.0, heavy=True),
    Attack(attacks_slow.large_strangers, ("storage",), named=True, seconds=2.0, heavy=True),
    Attack(attacks_slow.tiny_records, ("storage",), named=True, heavy=True),
    Attack(attacks_slow.deaf_client, ("client",), seconds=2.0),
    Attack(attacks_slow.deaf_server, ("storage",), seconds=2.0, heavy=True),
    Attack(attacks_slow.deaf_administrator, ("admin",), seconds=2.0, heavy=True),
    Attack(attacks_slow.vanished, FRAMED),
    Attack(attacks_work.many_locks, ("client",), named=True),
    Attack(attacks_work.many_flags, ("admin",), named=True),
    Attack(attacks_work.many_preferences, ("client",), named=True),
    Attack(attacks_work.half_small_frames, FRAMED, named=True, seconds=2.0, heavy=True, needs_tls=False),
    Attack(attacks_work.flood_of_questions, ("client",), seconds=5.0),
    Attack(attacks_work.flood_of_lists, ("client",), seconds=5.0),
    Attack(attacks_work.flood_of_mounts, ("client",), seconds=5.0),
    Attack(attacks_work.flood_of_administration, ("admin",)),
    Attack(attacks_work.pipelined_http, ("http",)),
    Attack(attacks_tls.stripped, FRAMED, named=True, needs_tls=True),
    Attack(attacks_tls.handshake_storm, FRAMED, needs_tls=True, heavy=True),
    Attack(attacks_tls.where_there_is_none, FRAMED, named=True, needs_tls=False),
    Attack(attacks_tls.wrong_certificate, (), named=True, needs_tls=True),
    Attack(attacks_http.bad_requests, ("http",)),
    Attack(attacks_http.slow_headers, ("http",), heavy=True),
    Attack(attacks_http.huge_bodies, ("http",), heavy=True),
    Attack(attacks_http.deaf_scraper, ("http",), heavy=True),
)
BY_NAME = {attack.name: attack for attack in ALL}
