"""Taking a server out of the cluster that does not do so itself: challenge, answer, eviction (ADR 35).

Who suspects a server creates `serverChallenges/<descriptor>`; a server that lives deletes it. The eviction is
one transaction that deletes the challenge and the descriptor and writes the assignment for those that stay.
So:
  1. it fails when the server has answered, whoever read what before: the leader of ZooKeeper decides;
  2. it concerns exactly the registration that was challenged: names of descriptors are never used twice;
  3. of two evictions that were decided by the same view one fails: both write the assignment with the version
     they read, and the other one has to look again;
  4. the challenge has been there since its judge created or found it: one that was answered, and created
     again by another judge, gives the server its time anew (`Challenges.unanswered`).

Everybody, a server of 0.13.2 as well, sees a server that left and an assignment made for those that stay.
Where another process came or left meanwhile the assignment is not made for the present members, and the
coordinator makes a new one as always.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping

from waltz_cluster.errors import NodeExistsError, NoNodeError, StoreError
from waltz_cluster.membership import Member, Snapshot
from waltz_cluster.paths import ClusterPaths
from waltz_cluster.serializers import PartitionAssignment, ServerDescriptor
from waltz_cluster.store import DeleteOp, SetOp, ZooKeeperStore

_log = logging.getLogger(__name__)

MembersListener = Callable[[tuple[Member, ...]], None]
_RETRY_SECONDS = 0.2


class Challenges:
    """The challenges of one cluster. StoreError from every method means: the outcome is not known."""

    def __init__(self, store: ZooKeeperStore, root: str) -> None:
        self._store = store
        self._paths = ClusterPaths(root)
        self._owners: dict[str, int] = {}
        """Session that created the challenge we wait for, by descriptor."""

    async def create(self, name: str) -> None:
        """Ask the server of this descriptor whether it lives. One that another server created counts as
        well."""
        try:
            await self._store.create(self._paths.challenge(name), None, ephemeral=True, make_parents=True)
        except NodeExistsError:
            _log.debug("server %s is challenged already", name)
        self._owners[name] = await self._owner(name)

    async def unanswered(self, name: str) -> bool:
        """Whether the challenge that `create` created, or found, is still there."""
        return self._owners.get(name, 0) == await self._owner(name) != 0

    def forget(self, name: str) -> None:
        """The server was evicted, and its challenge with it."""
        self._owners.pop(name, None)

    async def _owner(self, name: str) -> int:
        """0: there is none."""
        stat = await self._store.exists(self._paths.challenge(name))
        return stat.ephemeral_owner if stat is not None else 0

    async def delete(self, name: str) -> bool:
        """Answer it, or take it back; whether there was one."""
        self.forget(name)
        try:
            await self._store.delete(self._paths.challenge(name))
        except NoNodeError:
            return False
        return True

    async def delete_unanswered(self, name: str, seconds: float) -> bool:
        """Delete a descriptor unless its server answers a challenge in this time; whether it is gone."""
        await self.create(name)
        await asyncio.sleep(seconds)
        descriptor = self._paths.server_descriptor(name)
        try:
            if await self.unanswered(name):
                await self._store.transaction([DeleteOp(self._paths.challenge(name)), DeleteOp(descriptor)])
        except NoNodeError:
            _log.debug("server %s has answered or left just now", name)
        await self.delete(name)
        return await self._store.exists(descriptor) is None

    async def answer(self, name: str) -> None:
        """Answer every challenge to this descriptor at once, until cancelled."""
        path = self._paths.challenge(name)
        while True:
            changed = asyncio.Event()
            try:
                if await self._store.exists(path, changed.set) is not None and await self.delete(name):
                    _log.warning("this server was suspected, and has answered")
                    continue
            except StoreError as error:
                _log.debug("looking for challenges: %s", error)
                await asyncio.sleep(_RETRY_SECONDS)
                continue
            await changed.wait()


def members_without(snapshot: Snapshot, name: str) -> Mapping[int, ServerDescriptor]:
    """Who stays."""
    rest = tuple(znode for znode in snapshot.znodes if znode.name != name)
    return Snapshot(snapshot.version, snapshot.cversion, snapshot.assignment, rest).members


async def write_eviction(
    store: ZooKeeperStore,
    paths: ClusterPaths,
    snapshot: Snapshot,
    evicted: Member,
    assignment: PartitionAssignment,
) -> bool:
    """The transaction; False when the server has answered or left. VersionConflictError when anything that
    this was decided by has changed."""
    try:
        await store.transaction(
            [
                DeleteOp(paths.challenge(evicted.name)),
                DeleteOp(paths.server_descriptor(evicted.name), evicted.version),
                SetOp(paths.server_descriptors, assignment.to_bytes(), snapshot.version),
            ]
        )
    except NoNodeError:
        return False
    return True
