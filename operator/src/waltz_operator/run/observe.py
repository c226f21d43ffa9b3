"""Reading the world once: Kubernetes, ZooKeeper, every storage node's admin port, every server. Nothing is
written here.

All of it in bounded time and as much at the same time as the bounds allow. What does not answer, or not
completely, becomes an `Unknown` with the reason; no old answer is ever put in its place (`observe_again` is
for who only asks whether nothing is to be done: see `retained_looks`). ZooKeeper is read
before nodes and servers, so that what they say is newer than what it says (the planners count on that).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from waltz_admin.errors import AdminError
from waltz_admin.found_tree import BrokenTree, NoTree
from waltz_admin.tree_copy import read_tree
from waltz_admin.tree_file import ClusterTree
from waltz_cluster.errors import ClusterError
from waltz_operator.api import topology
from waltz_operator.api.cluster import WaltzCluster
from waltz_operator.api.errors import ResourceError
from waltz_operator.api.migration import WaltzMigration
from waltz_operator.api.parse import stored_cluster, stored_migration
from waltz_operator.api.security import TlsMode
from waltz_operator.api.validate import problem_lines
from waltz_operator.kube import kinds
from waltz_operator.kube.client import Kube, Object
from waltz_operator.kube.errors import KubeError, KubeNotFoundError
from waltz_operator.kube.kinds import Kind
from waltz_operator.model.ownership import belongs, of_an_earlier_one
from waltz_operator.model.snapshot import (
    Closure,
    KubeView,
    Snapshot,
    TreeView,
    Unknown,
)
from waltz_operator.model.times import seconds, timestamp
from waltz_operator.plan.certificate_problems import certificate_problems
from waltz_operator.plan.certificates import held_certificates
from waltz_operator.plan.status.unreadable import UnreadableError
from waltz_operator.plan.zookeeper_export import Exports
from waltz_operator.plan.zookeeper_secret import LoginSecret
from waltz_operator.resources.console import TOKEN_KEY
from waltz_operator.resources.images import ImageDefaults
from waltz_operator.resources.login import SECRET_KEY, Level
from waltz_operator.run.access import Access, digest_of
from waltz_operator.run.installations import Installations
from waltz_operator.run.kept_reads import FreshReads, KeptReads, Reads, WatchedTree
from waltz_operator.run.observe_processes import Limits, Processes
from waltz_operator.run.overridden import Overridden, recent
from waltz_operator.run.own_secrets import own_secrets
from waltz_operator.run.read_objects import read_objects, with_missing
from waltz_operator.run.retained_looks import KubernetesLook
from waltz_operator.run.tls_files import TlsFiles
from waltz_operator.run.zookeeper_access import guarded, read_mark
from waltz_operator.run.zookeeper_sessions import Ensemble, Ensembles
from waltz_operator.tls.secrets import TlsSecrets, material_digests, secret_data
from waltz_protocol.aio.tls import TlsSettings

SECRETS_SECONDS = 60.0
"""So long the Secrets of others are taken as they were read, of a cluster at rest."""


@dataclass(frozen=True, slots=True)
class Observation:
    """A snapshot, and what only the shell needs of the same look."""

    snapshot: Snapshot
    access: Access
    body: Object
    own_writes: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Filled by `apply`: uid of an object → its resource version before and after our own write."""
    written: dict[str, Object] = field(default_factory=dict)
    """Filled by `apply`: uid → the object as our own write of its status, or of its finalizers, has left
    it."""
    unreadable: tuple[UnreadableError, ...] = ()
    """Migrations of the cluster that cannot be read."""
    look: KubernetesLook | None = None
    """What it was made from, as far as the API server answered."""
    overridden: Overridden = field(default_factory=dict)
    """Filled by `apply`, and kept from one look to the next."""


def one_line(error: BaseException) -> str:
    """An error for a status or an Event."""
    return " ".join(str(error).split()) or type(error).__name__


def _counts(secret: Object, cluster: WaltzCluster) -> bool:
    """Whether it is this cluster's own, and does not go with an earlier one of its name."""
    return belongs(secret, cluster.metadata) and not of_an_earlier_one(secret, cluster.metadata)


def _others_secrets(cluster: WaltzCluster) -> bool:
    """Whether Secrets are read that somebody else writes."""
    mode = cluster.spec.tls.mode
    return mode not in (TlsMode.SELF_SIGNED, TlsMode.DISABLED) or cluster.spec.zookeeper.auth is not None


def _own_ensemble(cluster: WaltzCluster, login: LoginSecret) -> Ensemble:
    """The managed ZooKeeper, with the operator's credentials as soon as there are any. What the operator
    creates is closed to others from the pass on after which the roles' is."""
    where, root = topology.connect_string(cluster), topology.cluster_root(cluster)
    if not login.value:
        return Ensemble(where, root)
    own = Level.parse(cluster.status.zookeeper.login) is Level.OWN
    return Ensemble(where, root, "digest", login.value, "creator" if own else "open")


def _secured(
    cluster: WaltzCluster, ensemble: Ensemble | Unknown, tls: TlsSettings | None
) -> Ensemble | Unknown:
    """The same, reached with the operator's certificate where TLS is wanted."""
    if isinstance(ensemble, Unknown) or not topology.zookeeper_tls(cluster):
        return ensemble
    if tls is None:
        return Unknown("the certificate of the operator is not there yet, which ZooKeeper asks for")
    return replace(ensemble, certificates=tls.key_store)


def _shows_own_certificates(snapshot: Snapshot) -> bool:
    """Whether every process uses a certificate of the Secrets, as far as it has shown one: then it shows no
    other before a Secret is changed, which is reported."""
    own = {one.serial for one in snapshot.certificates.values()}
    views = (*snapshot.nodes.values(), *snapshot.servers.values())
    shown = (one.certificate for one in views if not isinstance(one, Unknown))
    return all(one is None or one.serial in own for one in shown)


class Observer:
    """Owner of what is kept for clusters at rest; sessions and files belong to who made it."""

    def __init__(
        self,
        kube: Kube,
        ensembles: Ensembles,
        tls_files: TlsFiles,
        wall_clock: Callable[[], float],
        limits: Limits | None = None,
        *,
        storage_classes: bool = True,
        operator_image: str = "",
        operator_namespace: str = "waltz-system",
        images: ImageDefaults | None = None,
        installations: Installations | None = None,
    ) -> None:
        """`storage_classes`: whether the role permits reading them (not in namespaced mode).
        `operator_image`, `operator_namespace` and `images` are this process's own, for the renderers.
        `installations`: None for who only reads."""
        self._installations = installations
        self._kube = kube
        self._ensembles = ensembles
        self._tls_files = tls_files
        self._wall_clock = wall_clock
        self._exports_failed: dict[tuple[str, str], float] = {}
        """When a copy of the records was due and could not be made, UNIX time."""
        self._limits = limits or Limits()
        self._processes = Processes(wall_clock, self._limits)
        self._fresh = FreshReads()
        self._kept: dict[tuple[str, str], tuple[KubernetesLook, KeptReads]] = {}
        self._watched: dict[tuple[str, str], WatchedTree] = {}
        self._overridden: dict[tuple[str, str], Overridden] = {}
        self._missing: dict[tuple[str, str], dict[str, float]] = {}
        """Of each cluster, since when pods are missing, UNIX time."""
        self._storage_classes = storage_classes
        self._operator_image = operator_image
        self._operator_namespace = operator_namespace
        self._images = images or ImageDefaults()

    async def observe(self, namespace: str, name: str) -> Observation:
        """One look at a cluster. KubeNotFoundError: there is no such object. UnreadableError: it cannot be
        read as one. OtherOperatorError: it is another installation's.

        Other errors of the API server about the object itself pass; every further error is in the snapshot.
        """
        at = self._wall_clock()
        self._drop_kept((namespace, name))  # of the look that this one replaces
        body, cluster = await self._cluster(namespace, name)
        access = await self.access(cluster)
        secrets = await own_secrets(self._kube, cluster)
        kube, (migrations, unreadable), (tree, closure) = await asyncio.gather(
            self._objects(cluster), self._migrations(cluster), self._tree(cluster, access, self._fresh)
        )
        look = KubernetesLook(body, cluster, access, kube, migrations, unreadable, at, at, secrets)
        return await self._with_processes(look, tree, closure, self._fresh)

    async def _cluster(self, namespace: str, name: str) -> tuple[Object, WaltzCluster]:
        body = await self._kube.get(kinds.WALTZ_CLUSTER, namespace, name)
        if self._installations is not None:
            await self._installations.check(body)
        try:
            return body, stored_cluster(body)
        except ResourceError as error:
            raise UnreadableError(body, error, self._wall_clock()) from error

    async def observe_copies(self, first: Observation) -> Observation:
        """All that a proof about copies depends on, anew: the specification, ZooKeeper and the storage nodes.
        Of the rest what `first` shows, and no servers. Errors as of `observe`."""
        metadata = first.snapshot.cluster.metadata
        if first.look is None:
            return await self.observe(metadata.namespace, metadata.name)
        body, cluster = await self._cluster(metadata.namespace, metadata.name)
        look = replace(first.look, body=body, cluster=cluster)
        tree, closure = await self._tree(cluster, look.access, self._fresh)
        return await self._with_processes(look, tree, closure, self._fresh, servers=False)

    async def observe_again(self, look: KubernetesLook) -> Observation:
        """The same with what the API server showed before, and with watches and connections that are kept as
        long as that (`kept_reads`); Secrets that are not the operator's, which nobody watches, are read anew
        after a while. Errors as of `observe`."""
        now = self._wall_clock()
        retained = look
        if _others_secrets(look.cluster) and now - look.access_at >= SECRETS_SECONDS:
            look = replace(look, access=await self.access(look.cluster), access_at=now)
        reads = self._reads(retained, look.access)
        tree, closure = await self._tree(look.cluster, look.access, reads)
        observation = await self._with_processes(look, tree, closure, reads)
        if isinstance(reads, KeptReads) and not _shows_own_certificates(observation.snapshot):
            reads.end_connections()
        return observation

    def _reads(self, look: KubernetesLook, access: Access) -> Reads:
        """What is kept for this look."""
        key = look.cluster.metadata.namespace, look.cluster.metadata.name
        known = self._kept.get(key)
        if known is not None and known[0] is look and known[1].tls == access.tls:
            return known[1]
        self._drop_kept(key)
        if access.tls is None:
            return self._fresh
        watched = self._watched.setdefault(key, WatchedTree())
        kept = KeptReads(access.tls, self._limits.process_seconds, self._wall_clock, watched)
        self._kept[key] = look, kept
        return kept

    def _drop_kept(self, key: tuple[str, str]) -> None:
        known = self._kept.pop(key, None)
        if known is not None:
            known[1].end_connections()

    async def _with_processes(
        self,
        look: KubernetesLook,
        tree: TreeView | NoTree | BrokenTree | Unknown,
        closure: Closure | None,
        reads: Reads,
        *,
        servers: bool = True,
    ) -> Observation:
        cluster, access, kube, migrations = look.cluster, look.access, look.kube, look.migrations
        unreadable = look.unreadable
        asked = tree if servers else Unknown("servers were not asked")
        nodes, loads = await asyncio.gather(
            self._processes.nodes(cluster, kube, tree, access, reads),
            self._processes.servers(asked, access, reads, loads=cluster.spec.servers.rebalance is not None),
        )
        digests = {role: material_digests(data) for role, data in access.secrets.contents.items()}
        now, overridden = self._wall_clock(), self._overridden_of(cluster)
        found = problem_lines(cluster.spec)
        snapshot = Snapshot(
            cluster=cluster,
            kube=migrations if isinstance(migrations, Unknown) else kube,
            tree=tree,
            nodes=nodes,
            servers=loads,
            now=now,
            overridden=recent(overridden, now),
            migrations=() if isinstance(migrations, Unknown) else migrations,
            tls_digests={role: found for role, found in digests.items() if found is not None},
            auth_hash=access.auth_hash,
            credentials=access.credentials,
            closure=closure,
            exported_at=access.exports.made,
            exports_since=access.exports.created,
            certificates=held_certificates(access.secrets),
            own_secrets=look.own_secrets,
            certificate_problems=certificate_problems(cluster, access.secrets, self._wall_clock()),
            operator_image=self._operator_image,
            operator_namespace=self._operator_namespace,
            images=self._images,
            installation=self._installations.own if self._installations is not None else "",
            problems=found.stopping,
            flaws=found.others,
            unreadable=tuple(
                f"WaltzMigration {one.body['metadata']['name']} cannot be read: {one_line(one)}"
                for one in unreadable
            ),
        )
        return Observation(
            snapshot, access, look.body, unreadable=unreadable, look=look, overridden=overridden
        )

    def _overridden_of(self, cluster: WaltzCluster) -> Overridden:
        return self._overridden.setdefault((cluster.metadata.namespace, cluster.metadata.name), {})

    # ---- Secrets

    async def access(self, cluster: WaltzCluster) -> Access:
        """How the cluster's ensemble and processes are reached. Errors of the API server pass: without
        Secrets nothing can be seen."""
        namespace = cluster.metadata.namespace
        roles = {role.role: role.secret for role in topology.tls_roles(cluster)}
        own = cluster.spec.tls.mode is TlsMode.SELF_SIGNED
        if own:
            authority = topology.authority_secret(cluster)
            roles[authority] = authority
        secrets: dict[str, Mapping[str, bytes]] = {}
        versions: dict[str, str] = {}
        bodies = await asyncio.gather(
            *(self._maybe(kinds.SECRET, namespace, secret) for secret in roles.values())
        )
        for role, body in zip(roles, bodies, strict=True):
            counts = body is not None and (not own or _counts(body, cluster))
            secrets[role] = secret_data(body) if counts else {}
            if body is not None and counts:
                versions[role] = str(body["metadata"]["resourceVersion"])
        if cluster.spec.tls.mode is TlsMode.DISABLED:
            tls: TlsSettings | None = TlsSettings(enabled=False)
        else:
            owner = (namespace, cluster.metadata.name)
            tls = self._tls_files.settings(owner, secrets.get("operator", {}))
        material, exports = TlsSecrets(secrets, versions), await self._exports(cluster)
        token = await self._console_token(cluster)
        if cluster.spec.zookeeper.managed is not None and cluster.spec.zookeeper.auth is None:
            login = await self._login(cluster)
            ensemble = _secured(cluster, _own_ensemble(cluster, login), tls)
            return Access(ensemble, tls, material, login=login, console_token=token, exports=exports)
        ensemble = _secured(cluster, await self._ensemble(cluster), tls)
        credentials = None if isinstance(ensemble, Unknown) else ensemble.credentials
        return Access(ensemble, tls, material, digest_of(credentials), console_token=token, exports=exports)

    async def _console_token(self, cluster: WaltzCluster) -> bool:
        """Whether there is one in the cluster's own Secret; not read where none is wanted."""
        wanted, name = cluster.spec.console.enabled, topology.console_secret(cluster)
        return wanted and bool(secret_data(await self._own_secret(cluster, name)).get(TOKEN_KEY))

    async def _exports(self, cluster: WaltzCluster) -> Exports:
        """The Secret with copies, where it is this cluster's."""
        if cluster.spec.zookeeper.export is None:
            return Exports()
        failed = self._exports_failed.get((cluster.metadata.namespace, cluster.metadata.name))
        secret = await self._own_secret(cluster, topology.export_secret(cluster))
        if secret is None:
            return Exports(failed=failed)
        version = str(secret["metadata"]["resourceVersion"])
        created = seconds(secret["metadata"].get("creationTimestamp"))
        return Exports(secret_data(secret), version, created, failed)

    async def export(self, observation: Observation) -> ClusterTree:
        """The cluster's records, as `waltz zk export` reads them. ClusterError, AdminError, TimeoutError."""
        cluster, ensemble = observation.snapshot.cluster, observation.access.ensemble
        if isinstance(ensemble, Unknown):
            raise AdminError(ensemble.reason)
        owner = (cluster.metadata.namespace, cluster.metadata.name)
        async with asyncio.timeout(self._limits.zookeeper_seconds):
            store = await self._ensembles.store(owner, ensemble)
            return await read_tree(store, ensemble.root, timestamp(observation.snapshot.now))

    def export_failed(self, observation: Observation) -> None:
        """The copy that was due was not made: the next attempt is after a pause."""
        metadata = observation.snapshot.cluster.metadata
        self._exports_failed[metadata.namespace, metadata.name] = observation.snapshot.now

    def forget(self, key: tuple[str, str]) -> None:
        """The cluster has gone."""
        self._exports_failed.pop(key, None)
        self._watched.pop(key, None)
        self._overridden.pop(key, None)
        self._missing.pop(key, None)
        self._drop_kept(key)

    async def close(self) -> None:
        """End what is kept, and wait until it is gone."""
        kept = [reads for _, reads in self._kept.values()]
        self._kept.clear()
        await asyncio.gather(*(one.close() for one in kept))

    async def _login(self, cluster: WaltzCluster) -> LoginSecret:
        """The Secret that the operator makes, where it is this cluster's."""
        secret = await self._own_secret(cluster, topology.zookeeper_secret(cluster))
        if secret is None:
            return LoginSecret()
        value = secret_data(secret).get(SECRET_KEY, b"").decode(errors="replace").strip()
        return LoginSecret(value, str(secret["metadata"]["resourceVersion"]))

    async def _ensemble(self, cluster: WaltzCluster) -> Ensemble | Unknown:
        where, root = topology.connect_string(cluster), topology.cluster_root(cluster)
        auth = cluster.spec.zookeeper.auth
        if auth is None:
            return Ensemble(where, root)
        secret = await self._maybe(kinds.SECRET, cluster.metadata.namespace, auth.secret_name)
        value = secret_data(secret).get(auth.key, b"").decode(errors="replace").strip()
        if not value and cluster.metadata.deleting:  # the end of its namespace has taken the Secret along
            value = self._ensembles.credentials((cluster.metadata.namespace, cluster.metadata.name)) or ""
        if not value:
            return Unknown(f"Secret {auth.secret_name} has no {auth.key}: the credentials of ZooKeeper")
        return Ensemble(where, root, auth.scheme, value, auth.acl)

    async def _own_secret(self, cluster: WaltzCluster, name: str) -> Object | None:
        """Where it is this cluster's."""
        secret = await self._maybe(kinds.SECRET, cluster.metadata.namespace, name)
        return secret if secret is not None and _counts(secret, cluster) else None

    async def _maybe(self, kind: Kind, namespace: str, name: str) -> Object | None:
        try:
            return await self._kube.get(kind, namespace, name)
        except KubeNotFoundError:
            return None

    # ---- Kubernetes

    async def _objects(self, cluster: WaltzCluster) -> KubeView | Unknown:
        known = self._overridden_of(cluster)
        missing = self._missing.setdefault((cluster.metadata.namespace, cluster.metadata.name), {})
        try:
            found = await read_objects(self._kube, cluster, known, classes=self._storage_classes)
            return with_missing(found, missing, self._wall_clock())
        except KubeError as error:
            return Unknown(f"the objects of the cluster cannot be read: {one_line(error)}")

    async def _migrations(
        self, cluster: WaltzCluster
    ) -> tuple[tuple[WaltzMigration, ...] | Unknown, tuple[UnreadableError, ...]]:
        """Those that name the cluster, and those that cannot be read: each may be in progress. A deletion
        waits for them."""
        try:
            bodies = await self._kube.list(kinds.WALTZ_MIGRATION, cluster.metadata.namespace)
        except KubeError as error:
            return Unknown(f"the migrations cannot be read: {one_line(error)}"), ()
        wanted = [body for body in bodies if (body.get("spec") or {}).get("cluster") == cluster.metadata.name]
        found: list[WaltzMigration] = []
        unreadable: list[UnreadableError] = []
        for body in wanted:
            try:
                found.append(stored_migration(body))
            except ResourceError as error:
                unreadable.append(UnreadableError(body, error, self._wall_clock()))
        if unreadable and cluster.metadata.deleting:
            first = unreadable[0]
            name = first.body["metadata"]["name"]
            return Unknown(f"WaltzMigration {name} cannot be read: {one_line(first)}"), tuple(unreadable)
        return tuple(found), tuple(unreadable)

    # ---- ZooKeeper

    async def _tree(
        self, cluster: WaltzCluster, access: Access, reads: Reads
    ) -> tuple[TreeView | NoTree | BrokenTree | Unknown, Closure | None]:
        """The cluster in ZooKeeper, and of a managed one with credentials the mark on its root."""
        if isinstance(access.ensemble, Unknown):
            return access.ensemble, None
        closure: Closure | None = None
        owner = (cluster.metadata.namespace, cluster.metadata.name)
        try:
            async with asyncio.timeout(self._limits.zookeeper_seconds):
                store = await self._ensembles.store(owner, access.ensemble)
                if access.login.value:
                    closure = await read_mark(guarded(store), access.login.value)
                return await reads.tree(store, access.ensemble.root), closure
        except TimeoutError:
            seconds = self._limits.zookeeper_seconds
            return Unknown(f"ZooKeeper gave no complete answer within {seconds:g} s"), closure
        except ClusterError as error:
            return Unknown(f"ZooKeeper: {one_line(error)}"), closure
