"""Which changes of a role's Secret restart its pods: a new authority does, a renewed certificate does not."""

from __future__ import annotations

from operator_tests.resources.clusters import cluster
from waltz_operator.tls.secrets import MaterialDigests, material_digests

from .world import DAY, LIFETIMES, ZOOKEEPER, World

RENEWED = cluster({"tls": {**LIFETIMES, "certificateLifetimeHours": 24 * 30}, **ZOOKEEPER})


def digests(world: World) -> dict[str, MaterialDigests]:
    return {role: world.digests(role) for role in ("server", "storage")}


def test_renewed_certificates_plan_no_restart() -> None:
    world = World(cluster=RENEWED, handshakes=False)
    world.install()
    before = digests(world)
    world.now += 21 * DAY
    world.write_all()
    after = digests(world)
    for role, was in before.items():
        assert after[role].material != was.material, "or nothing was renewed"
        assert after[role].authorities == was.authorities
    assert world.outdated == []
    world.check()


def test_each_round_of_a_new_authority_restarts_every_pod() -> None:
    """That all have restarted is what the next round waits for."""
    world = World(handshakes=False)
    world.install()
    world.now += 61 * DAY
    world.write_all()
    rounds = 0
    while True:
        rounds += 1
        assert len(world.outdated) == len(world.pods), world.log
        world.restart_all()
        world.check()
        writes = world.look(settled=True)
        if not writes:
            break
        for write in writes:
            world.write(*write)
        world.write_all()
    assert rounds == 3
    world.rests_on_one_authority()


def test_what_is_not_complete_or_cannot_be_read() -> None:
    world = World(handshakes=False)
    world.install()
    data = world.secrets["server"]
    for key in data:
        assert material_digests({**data, key: b""}) is None
    for key in ("tls.crt", "ca.crt"):
        broken = [material_digests({**data, key: content}) for content in (b"one", b"other")]
        assert all(one is not None and one.material == one.authorities for one in broken)
        assert broken[0] != broken[1]
