"""A small world for the certificates of one cluster: Secrets, pods with the material they have taken over,
and the operator.

A pod takes over what its Secret holds at any moment after it was written. The operator knows that it has when
the pod was restarted, which it does where the authorities have changed.

An operator that dies forgets what it wanted to write. Every event ends with the question whether all who talk
to each other still can.
"""

from __future__ import annotations

import random
import ssl
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

from cryptography import x509
from cryptography.x509.oid import ExtensionOID

from operator_tests.resources.clusters import cluster
from waltz_admin.authority import describe, make_authority, split
from waltz_operator.api.cluster import WaltzCluster
from waltz_operator.model.actions import ApplyObject
from waltz_operator.model.reasons import Reason
from waltz_operator.plan.certificate_problems import certificate_problems
from waltz_operator.plan.certificates import certificate_steps
from waltz_operator.tls.secrets import MaterialDigests, TlsSecrets, material_digests, secret_data
from waltz_protocol.aio.tls import TlsSettings, client_context, server_context

DAY = 86_400.0
BEGIN = 1_800_000_000.0
LIFETIMES = {"certificateLifetimeHours": 24 * 89, "authorityLifetimeHours": 24 * 90}
ZOOKEEPER = {"zookeeper": {"managed": {"tls": "Enabled"}}}
CLUSTER = cluster({"tls": LIFETIMES, **ZOOKEEPER})
CA = "ledger-tls-ca"
ROLES = ("server", "storage", "operator", "zookeeper", "client")
PODS = ("server", "server", "storage", "storage", "storage", "zookeeper", "client")
KEYS = ("tls.crt", "tls.key", "ca.crt")
Material = tuple[bytes, bytes, bytes]
Data = Mapping[str, bytes]
Write = tuple[str, dict[str, bytes], bool]


@cache
def key_ids(material: Material) -> tuple[bytes, frozenset[bytes]]:
    """Who signed it, and whom it trusts."""
    return describe(material[0], "").issuer_key_id, frozenset(
        describe(one, "").key_id for one in split(material[2])
    )


@cache
def contexts(material: Material) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """For connecting and for listening, by the loaders that processes use. They check dates by the real
    clock: none here."""
    with tempfile.TemporaryDirectory() as directory:
        for name, content in zip(KEYS, material, strict=True):
            (Path(directory) / name).write_bytes(content)
        settings = TlsSettings(key_store=directory, trust_store=directory, verify_host_name=False)
        connecting, listening = client_context(settings), server_context(settings)
    assert connecting is not None
    assert listening is not None
    for context in (connecting, listening):
        context.verify_flags |= _NO_CHECK_TIME
    return connecting, listening


_NO_CHECK_TIME = 0x200000  # X509_V_FLAG_NO_CHECK_TIME of OpenSSL: the world's clock is not the machine's


@cache
def what_decides(material: Material) -> tuple[object, ...]:
    """Whose certificates it takes, and who takes its own: names are not compared here, keys are its own."""
    first, *others = split(material[0])
    certificate = x509.load_pem_x509_certificate(first)
    said = frozenset(
        (one.oid, one.value.public_bytes())
        for one in certificate.extensions
        if one.oid not in (ExtensionOID.SUBJECT_KEY_IDENTIFIER, ExtensionOID.SUBJECT_ALTERNATIVE_NAME)
    )
    return certificate.issuer, said, tuple(others), material[2]


_taken: dict[object, bool] = {}


def handshake(connecting: Material, listening: Material) -> bool:
    """Whether both sides take each other's certificate. Each certificate is tried with itself, which shows
    that its key belongs to it; of pairs that differ by names and keys only, one is tried."""
    pair = (connecting, listening)
    kind = pair if connecting == listening else tuple(map(what_decides, pair))
    if kind not in _taken:
        _taken[kind] = real_handshake(*pair)
    return _taken[kind]


def real_handshake(connecting: Material, listening: Material) -> bool:
    """Over memory."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = contexts(connecting)[0].wrap_bio(to_client, to_server)
    server = contexts(listening)[1].wrap_bio(to_server, to_client, server_side=True)
    waiting = [client, server]
    try:
        for _ in range(10):
            for side in tuple(waiting):
                try:
                    side.do_handshake()
                    waiting.remove(side)
                except ssl.SSLWantReadError:
                    continue
            if not waiting:
                server.write(b"hello")  # with TLS 1.3 a refused client hears of it at its first read only
                return client.read(5) == b"hello"
    except ssl.SSLError:
        return False
    return False


def trust_each_other(one: Material, other: Material) -> bool:
    """By the ids of their keys."""
    return key_ids(one)[0] in key_ids(other)[1] and key_ids(other)[0] in key_ids(one)[1]


@dataclass
class World:
    """`pending`: what the operator has decided to write and has not written yet; it is gone when the
    operator dies."""

    cluster: WaltzCluster = CLUSTER
    now: float = BEGIN
    secrets: dict[str, dict[str, bytes]] = field(default_factory=dict)
    pods: list[Material] = field(default_factory=list)
    templates: list[str] = field(default_factory=list)
    """Of each pod, the authorities that its template was made for."""
    handshakes: bool = True
    """Also by real handshakes, which take their time, at every event."""
    log: list[str] = field(default_factory=list)
    pending: list[Write] = field(default_factory=list)
    own_fields: set[str] = field(default_factory=set)
    """Keys of the authority's Secret that (also) belong to somebody else than our apply (whoever created it,
    a person): an apply without them leaves them there."""

    def material(self, role: str) -> Material:
        data = self.secrets[role]
        return data["tls.crt"], data["tls.key"], data["ca.crt"]

    def copy(self) -> World:
        return replace(
            self,
            secrets={name: dict(data) for name, data in self.secrets.items()},
            pods=list(self.pods),
            templates=list(self.templates),
            log=list(self.log),
            pending=list(self.pending),
            own_fields=set(self.own_fields),
        )

    # ---- the operator

    def look(self, *, settled: bool) -> list[Write]:
        """What a pass would write, each Secret's key, contents, and whether it is a new one."""
        versions = dict.fromkeys(self.secrets, "1")
        steps = certificate_steps(self.cluster, TlsSecrets(self.secrets, versions), self.now, settled=settled)
        found = []
        for step in steps:
            if isinstance(step, ApplyObject):
                name = step.key.name if step.key.name == CA else step.key.name.removeprefix("ledger-tls-")
                new = step.body["metadata"]["resourceVersion"] == ""
                self.log.append(f"write {name}: {step.reason}")
                found.append((name, secret_data(step.body), new))
        return found

    def write(self, name: str, data: dict[str, bytes], new: bool) -> None:
        """As the API server does: what an earlier owner set and nobody has changed since survives an apply
        without it."""
        assert new == (name not in self.secrets)
        if name == CA:
            before = self.secrets.get(CA, {})
            if new:
                self.own_fields = set(data)
            self.own_fields -= {key for key in data if not new and before.get(key) != data[key]}
            data = {key: before[key] for key in self.own_fields if key in before} | data
        self.secrets[name] = data

    @property
    def outdated(self) -> list[int]:
        """Pods that have to be restarted."""
        return [n for n, role in enumerate(PODS) if self.templates[n] != self.digests(role).authorities]

    def digests(self, role: str) -> MaterialDigests:
        found = material_digests(self.secrets[role])
        assert found is not None
        return found

    def restart(self, pod: int) -> None:
        role = PODS[pod]
        self.pods[pod], self.templates[pod] = self.material(role), self.digests(role).authorities

    def install(self) -> None:
        """Certificates, then pods."""
        self.write_all()
        self.restart_all()
        self.check()

    def write_all(self) -> None:
        """Passes until there is nothing to write before the pods have restarted."""
        while writes := self.look(settled=False):
            for write in writes:
                self.write(*write)

    def restart_all(self) -> None:
        """All pods at once, as a person does who deletes them."""
        self.pods = [self.material(role) for role in PODS]
        self.templates = [self.digests(role).authorities for role in PODS]

    def turn(self, rng: random.Random, *, crash: float) -> bool:
        """One event: a write, a restart, or the operator's death. False: there is nothing to do any more."""
        if self.pending and rng.random() < crash:
            self.log.append("crash")
            self.pending = []
        outdated = self.outdated
        if not self.pending:
            self.pending = self.look(settled=False) or ([] if outdated else self.look(settled=True))
        if not self.pending and not outdated:
            return False
        if self.pending and not (outdated and rng.random() < 0.4):
            name, data, new = self.pending.pop(0)
            self.write(name, data, new)
        else:
            pod = rng.choice(outdated)
            self.log.append(f"restart {PODS[pod]}")
            self.restart(pod)
        if rng.random() < 0.3:
            pod = rng.randrange(len(PODS))
            self.log.append(f"{PODS[pod]} follows its files")
            self.pods[pod] = self.material(PODS[pod])
        self.check()
        return True

    # ---- what must hold

    def check(self) -> None:
        """The operator and every pod, and every two pods, take each other's certificates, and no Secret is
        reported to hold one that others refuse."""
        present = TlsSecrets(self.secrets, dict.fromkeys(self.secrets, "1"))
        found = certificate_problems(self.cluster, present, self.now)
        assert [one for one in found if one.reason is Reason.AUTHORITY_NOT_TRUSTED] == [], self.log
        everyone = {*self.pods, self.material("operator")}
        for one in everyone:
            for other in everyone:
                assert trust_each_other(one, other), self.log
                assert not self.handshakes or handshake(one, other), self.log

    def finish(self, rng: random.Random, crash: float) -> None:
        """Events until nothing is left to do."""
        for _ in range(300):
            if not self.turn(rng, crash=crash):
                return
        raise AssertionError(self.log)

    def rests_on_one_authority(self) -> bytes:
        """The id of its key; nothing else is trusted, by anybody."""
        ca = self.secrets[CA]
        assert set(ca) == {"tls.crt", "tls.key"}, self.log
        current = describe(ca["tls.crt"], "").key_id
        for material in (*self.pods, *(self.material(role) for role in ROLES)):
            assert key_ids(material) == (current, frozenset({current})), self.log
        return current

    # ---- what may happen to the authority's Secret

    def deleted(self, name: str = CA) -> None:
        self.log.append(f"delete {name}")
        self.pending = []
        self.secrets.pop(name, None)

    def key_gone(self) -> None:
        self.log.append("the key is gone")
        self.pending = []
        self.secrets.get(CA, {}).pop("tls.key", None)

    def key_unreadable(self) -> None:
        self.log.append("the key is unreadable")
        self.pending = []
        self.secrets.setdefault(CA, {})["tls.key"] = b"no key"
        self.own_fields.add("tls.key")

    def another_one(self) -> None:
        """Somebody puts an authority of their own there."""
        self.log.append("another authority")
        self.pending = []
        pair = make_authority("somebody else's", self.now, 400 * DAY)
        self.secrets[CA] = {"tls.crt": pair.certificate, "tls.key": pair.key}
        self.own_fields = set(self.secrets[CA])


LOSSES: dict[str, Callable[[World], None]] = {
    "deleted": World.deleted,
    "key gone": World.key_gone,
    "key unreadable": World.key_unreadable,
    "another one": World.another_one,
}
