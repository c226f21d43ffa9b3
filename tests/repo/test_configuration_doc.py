"""docs/configuration.md is made from the settings classes; WALTZ_WRITE_DOCS=1 writes it, otherwise it must be
up to date.

A key's meaning is the docstring under its field; keys whose names say it all have theirs in `MEANINGS` here.
The keys of release 0.13.2 are listed apart from the code, so that one that gets lost is noticed (safety F1).
"""

import ast
import inspect
import os
import textwrap
from dataclasses import dataclass

import pytest
from pydantic.fields import FieldInfo

from tests.repo.files import ROOT
from waltz_client.settings import ClientSettings
from waltz_cluster.config.settings import CliSettings, RoleSettings, TlsOptions, ZooKeeperSettings
from waltz_server.settings import ServerSettings
from waltz_storage.settings import StorageSettings

DOCUMENT = ROOT / "docs" / "configuration.md"
TLS_PREFIX = "<prefix>"

CLUSTER_KEYS = {"zookeeper.connectString", "zookeeper.sessionTimeout", "cluster.root"}
TLS_KEYS = {
    *(f"{store}.{key}" for store in ("keyStore", "trustStore") for key in ("location", "password", "type")),
    "keyManager.algorithm",
    "trustManager.algorithm",
}
GRAPHITE_KEYS = {"hostname", "port", "prefix", "reportIntervalMs", "useUdp"}


def old_keys(role: str, own: set[str], *, graphite: bool = False) -> set[str]:
    """All keys release 0.13.2 knows for a role, by its own keys without the prefix."""
    keys = CLUSTER_KEYS | {f"{role}.{key}" for key in own} | {f"{role}.ssl.{key}" for key in TLS_KEYS}
    return keys | {f"{role}.graphite.{key}" for key in GRAPHITE_KEYS} if graphite else keys


KEYS_OF_0_13_2: dict[type[RoleSettings], set[str]] = {
    StorageSettings: old_keys(
        "storage",
        {"port", "admin.port", "jetty.port", "directory", "segment.size.threshold", "segment.cache.capacity"},
        graphite=True,
    ),
    ServerSettings: old_keys(
        "server",
        {
            "port",
            "jetty.port",
            "region",
            "optimisticLockTableSize",
            "feedCacheSize",
            "minFetchSize",
            "realtimeThreshold",
        }
        | {"transactionDataCacheSize", "transactionDataCacheAllocation"},
        graphite=True,
    )
    | {
        f"storage.{key}"
        for key in ("maxBatchSize", "initialRetryInterval", "maxRetryInterval", "checkpointInterval")
    },
    ClientSettings: old_keys(
        "client",
        {
            "autoMount",
            "numTransactionRetryThreads",
            "numConsumerThreads",
            "longWaitThreshold",
            "maxConcurrentTransactions",
        }
        | {"mockDriver"},
    ),
    CliSettings: CLUSTER_KEYS | {"zookeeper.connectTimeout"} | {f"ssl.{key}" for key in TLS_KEYS},
}

MEANINGS = {
    "zookeeper.connectString": "ZooKeeper servers, `host:port,host:port`; with `/prod` behind the last one, "
    "everything is below that znode.",
    "zookeeper.sessionTimeout": "Session timeout asked for, ms. A server stops serving when it has had no contact for that long.",
    "zookeeper.connectTimeout": "How long the first connection may take, ms.",
    "cluster.root": "Absolute path of the cluster's tree.",
    "storage.port": "Port for servers.",
    "storage.admin.port": "Port for tools.",
    "storage.jetty.port": "HTTP port; none = no HTTP.",
    "storage.directory": "Where the files are; must exist.",
    "storage.segment.size.threshold": "A segment larger than this (bytes) is followed by a new one.",
    "storage.segment.cache.capacity": "Read-only segments per partition whose files stay open.",
    "storage.bind.host": "Address all ports listen on; default: what the machine's own host name resolves to, as 0.13.2.",
    "storage.journal.enabled": (
        "One journal for all partitions of the node: one sync for everything that arrives together, in place of one "
        "per partition. Every append is written twice. A directory that was not closed in order is then opened by this "
        "release only ([operations.md](operations.md#the-node-journal))."
    ),
    "storage.journal.directory": (
        "Where the journal is, for a second device, of this node alone; none = `waltz-journal` inside the storage directory."
    ),
    "storage.journal.files": "Journal files, made and filled when the node starts.",
    "storage.journal.fileBytes": "Size of each.",
    "storage.disk.threads": "Threads that write, sync and read.",
    "storage.disk.inline": "A single append that is alone is written without a disk thread while the disk is fast; false = always a thread (better where busy processes outnumber cores).",
    "storage.disk.reserveBytes": "Bytes of the file system kept free: appends that would touch them are refused until a quarter more "
    "is free; default: 2 % of the file system, 1 GiB at most. 0 = refused only when the file system is full.",
    "storage.maxFrameBytes": "Largest frame accepted, bytes.",
    "storage.maxProtocolVersion": "Newest version of the protocol between servers and storage nodes that is offered; 0 is that of 0.13.2.",
    "storage.queue.maxBytes": "Bytes of requests that may wait per partition; what comes beyond is answered with Failure.",
    "storage.queue.totalBytes": "The same over all partitions: on a disk that hangs every queue fills.",
    "storage.maxConnections": "More connections to a port than this are closed at once.",
    "storage.maxHandshakes": "Connections to a port that have not finished TLS and Hello; beyond it the slowest are closed.",
    "storage.receiveBytes": "Memory for requests that have not arrived completely, over both ports; beyond it peers are held back, and those that stopped in the middle of a small request (up to 64 KiB; half of the memory is for these) are disconnected.",
    "storage.ssl.allowedPeers": "Names of client certificates (common name or subject alternative name) that may connect to the storage "
    "port: the servers', and those of tools that recover offline. None = every one the trust store verifies, as 0.13.2.",
    "storage.admin.ssl.allowedPeers": "The same for the admin port: the names of the tools' certificates.",
    "storage.log.level": "Least level logged to standard error.",
    "storage.log.json": "One JSON object per log line.",
    "storage.graphite.hostname": "Where metrics are reported; none = no reports.",
    "storage.graphite.port": "Port of Graphite.",
    "storage.graphite.prefix": "Put in front of every name.",
    "storage.graphite.reportIntervalMs": "Interval. The name of the key means milliseconds, 0.13.2 takes the value as **seconds**, and so do we.",
    "storage.graphite.useUdp": "UDP in place of TCP.",
    "server.port": "Port for clients.",
    "server.optimisticLockTableSize": "Slots of each partition's lock table.",
    "server.feedCacheSize": "Bytes of transaction headers kept for feeds, all partitions together.",
    "server.minFetchSize": "Least credit of a feed request, transactions; less than `server.realtimeThreshold`.",
    "server.realtimeThreshold": "A feed closer to the end than this (transactions) is served first.",
    "server.transactionDataCacheSize": "Bytes of transactions kept for those who read them, all partitions together.",
    "server.advertised.port": "Port that clients connect to; default: `server.port`.",
    "server.maxFrameBytes": "Largest frame accepted from a client, bytes, 64 MiB less 64 bytes at most. A larger append of a client with "
    "`client.answeredAppends` is refused; any other larger frame ends the connection.",
    "server.maxConnections": "More connections than this are closed at once.",
    "server.appendQueueCount": "Appends one partition keeps waiting.",
    "server.log.level": "Least level logged to standard error.",
    "server.log.json": "One JSON object per log line.",
    "server.graphite.hostname": "Where metrics are reported; none = no reports.",
    "server.graphite.port": "Port of Graphite.",
    "server.graphite.prefix": "Put in front of every name.",
    "server.graphite.useUdp": "UDP in place of TCP.",
    "storage.maxBatchSize": "Transactions per Append frame to a storage node.",
    "storage.initialRetryInterval": "First pause before an unreachable replica is tried again, ms; it doubles.",
    "storage.maxRetryInterval": "Longest pause, ms.",
    "storage.checkpointInterval": "After this many transactions a new store session begins, which raises the low-water marks. A session has to last for seconds: a late replica joins within one.",
    "enabled": "false = plaintext.",
    "allowUnverified": "Accept any certificate of the peer when there is no trust store. For a connecting side without a trust store this "
    "must be set: it is not the default.",
    "verifyHostName": "Compare the certificate with the host name that was connected to (needs a trust store).",
    "keyStore.location": "Key and certificate chain: a PEM or PKCS#12 file, or a directory with `tls.crt` and `tls.key`. Without it a listening "
    "side makes a self-signed certificate.",
    "keyStore.password": "Of the file and of the private key.",
    "keyStore.type": "Accepted and not needed: the format is seen from the content.",
    "trustStore.location": "Certificates that are trusted: a PEM or PKCS#12 file, or a directory with `ca.crt`. On a listening side it makes "
    "client certificates mandatory.",
    "trustStore.password": "Of a PKCS#12 file.",
    "trustStore.type": "Accepted and not needed: the format is seen from the content.",
    "keyManager.algorithm": "No effect (a Java setting).",
    "trustManager.algorithm": "No effect (a Java setting).",
}
UNKNOWN = "(no meaning: give the field a docstring)"
NO_EFFECT = {
    "server.region": "No effect, here or in 0.13.2.",
    "client.numConsumerThreads": "No effect: callbacks run on the event loop, in order per partition.",
    "client.mockDriver": "No effect in a file. In code: a log for tests in place of a cluster ([applications.md](applications.md)).",
}


@dataclass(frozen=True)
class Row:
    """One line of a table. `old`: release 0.13.2 knows the key too."""

    key: str
    default: str
    limits: str
    meaning: str
    old: bool

    def text(self) -> str:
        cells = (f"`{self.key}`", self.default, self.limits, self.meaning, "0.13.2" if self.old else "ours")
        return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def docstrings(cls: type[object]) -> dict[str, str]:
    """The text under each field of a settings class, on one line, in Markdown."""
    body = ast.parse(textwrap.dedent(inspect.getsource(cls))).body[0]
    assert isinstance(body, ast.ClassDef)
    found: dict[str, str] = {}
    for field, text in zip(body.body, body.body[1:], strict=False):
        if not (isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)):
            continue
        if isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant):
            found[field.target.id] = " ".join(str(text.value.value).split()).replace("``", "`")
    return found


def default_of(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    value = field.default
    if value is None or value == ():
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int) and value >= 1 << 20 and value % (1 << 20) == 0:
        return f"{value} ({value >> 20} MiB)"
    return f"{value:g}" if isinstance(value, float) else str(value)


def limits_of(field: FieldInfo) -> str:
    kinds = str(field.annotation).replace("<class '", "").replace("'>", "").replace(" | None", "")
    signs = {"gt": ">", "ge": "≥", "lt": "<", "le": "≤"}
    bounds = [
        f"{sign} {getattr(rule, name)}"
        for rule in field.metadata
        for name, sign in signs.items()
        if hasattr(rule, name)
    ]
    return ", ".join(
        [
            {
                "int": "integer",
                "str": "text",
                "bool": "true or false",
                "float": "number",
                "typing.Literal['none', 'zstd']": "`none` or `zstd`",
                "tuple[str, ...]": "list of names",
                "tuple[waltz_protocol.types.Endpoint, ...]": "list of host:port",
                "uuid.UUID": "UUID",
            }[kinds],
            *bounds,
        ]
    )


def rows_of(
    cls: type[RoleSettings] | type[TlsOptions], old: set[str], *, inherited: bool = False
) -> list[Row]:
    """The keys of a class in the order of their declaration; with `inherited` those of its bases too."""
    texts = {
        name: text
        for base in reversed(cls.__mro__[:-1])
        if issubclass(base, RoleSettings | TlsOptions)
        for name, text in docstrings(base).items()
    }
    of_bases = {name for base in cls.__mro__[1:] for name in getattr(base, "__annotations__", ())}
    own = set(cls.__annotations__) - of_bases
    rows = []
    for name, field in cls.model_fields.items():
        if not field.alias or (name not in own and not inherited):
            continue
        key = field.alias
        rows.append(
            Row(
                key,
                default_of(field),
                limits_of(field),
                texts.get(name) or MEANINGS.get(key, UNKNOWN),
                key in old,
            )
        )
    return rows


def table(rows: list[Row]) -> str:
    return "\n".join(
        [
            "| key | default | value | meaning | known to |",
            "| --- | --- | --- | --- | --- |",
            *(row.text() for row in rows),
        ]
    )


def role_table(cls: type[RoleSettings]) -> str:
    old = KEYS_OF_0_13_2[cls]
    without_effect = [Row(key, "", "anything", NO_EFFECT[key], key in old) for key in sorted(cls.NO_EFFECT)]
    *first, last = (f"`{prefix}`" for prefix in cls.TLS_PREFIXES)
    prefixes = f"{', '.join(first)} and {last}" if first else last
    return f"{table(rows_of(cls, old) + without_effect)}\n\nTLS: the keys of [TLS](#tls) below {prefixes}."


def render() -> str:
    """The whole document."""
    cluster = rows_of(ZooKeeperSettings, CLUSTER_KEYS | {"zookeeper.connectTimeout"})
    tls = [
        Row(f"{TLS_PREFIX}.{row.key}", row.default, row.limits, row.meaning, row.old)
        for row in rows_of(TlsOptions, TLS_KEYS)
    ]
    return f"""# Configuration

This page is for those who write a configuration file: every key of every role, its default and its meaning.
It is made from the settings classes by `tests/repo/test_configuration_doc.py`;
`WALTZ_WRITE_DOCS=1 .venv/bin/pytest tests/repo/test_configuration_doc.py` writes it again.

Every role reads one YAML file. Keys may be dotted, nested, or both (`server.port: 1`, `server: {{port: 1}}`);
numbers and booleans may be text. An unknown key ends the start with one line, which says whose key it is
if another role has it, or names the nearest known one if one is near; a file of another role ends it with one
that says whose it is; a key of release 0.13.2 that has no effect is accepted with a warning. *Known to* shows
whether release 0.13.2 has the key too: those work unchanged, with the same default
([compatibility.md](compatibility.md)).

`waltz config check FILE` finds whose file it is, and shows every mistake at once before a process is started
with it: unknown keys, wrong values, values that exclude each other, and files that cannot be used. What
depends on a key with a mistake is checked when that one is mended.

## All roles

{table(cluster)}

The command line needs no `zookeeper.sessionTimeout` (default 30000). Only `zookeeper.connectTimeout` among
0.13.2's keys was a key of its tools alone; here every role has it.

## Storage node

`waltz-storage CONFIG.yaml`. The three ports must differ.

{role_table(StorageSettings)}

## Server

`waltz-server CONFIG.yaml`. `server.port` and `server.jetty.port` must differ.

{role_table(ServerSettings)}

`server.ssl` is for the port clients connect to. Connections to storage nodes take `storage.ssl` if the file
has any such key, and `server.ssl` otherwise, which is what 0.13.2 does, although its documents differ.

## Client

`WaltzClient.connect("client.yaml")`; a mapping does too. A client finds its cluster by `servers`, or by
`zookeeper.connectString`, `zookeeper.sessionTimeout` and `cluster.root`; both, or neither, is an error. With
`servers` its process has no connection to ZooKeeper, and no key of [all roles](#all-roles):

```yaml
servers: [server-1.example:55180, server-2.example:55180]
client.clusterKey: 3d0f6c9e-7a51-4c2b-9a53-0c1e5f2b7d84
```

Give the key (`waltz zk show-cluster-key`) wherever several processes belong together: an address can pass to
another cluster, and without the key each process follows the cluster of the server that answers it first.

A few are enough, for the others are found, and so are servers that come later. At least one of them must be
of this release; servers of 0.13.2 know no directory ([ADR 39](adr/0039-servers-in-place-of-zookeeper.md)).

{role_table(ClientSettings)}

The file may hold the keys of the command line next to its own: they are ignored.

## Command line

`waltz … -c FILE`, or the environment variable `WALTZ_CONFIG`. The keys of [all roles](#all-roles), TLS below
`ssl`; keys that begin with `client.` are ignored, so one file serves both. `WALTZ_DEBUG=1` adds where an
error came from.

## TLS

`{TLS_PREFIX}` is the role's: `storage.ssl`, `server.ssl`, `client.ssl`, `ssl`. On by default; versions 1.2
and 1.3. A Java key store (JKS) is refused with the `keytool` line that converts it to PKCS#12.

{table(tls)}

## Environment

| variable | effect |
| --- | --- |
| `WALTZ_CONFIG` | configuration file of the `waltz` command |
| `WALTZ_DEBUG=1` | the `waltz` command adds where an error came from |
| `WALTZ_COUNT_TASKS=1` | services count the tasks and futures their event loop makes per turn (for `bench/`) |
| `WALTZ_ADDRESS` | the own address of a server, for `{{address}}` and `{{dashed-address}}` in `server.advertised.host`; default: what its host name resolves to |
"""


def test_the_document_is_what_the_code_says() -> None:
    text = render()
    assert UNKNOWN not in text
    if os.environ.get("WALTZ_WRITE_DOCS") == "1":
        DOCUMENT.write_text(text)
    assert DOCUMENT.read_text() == text, (
        "run WALTZ_WRITE_DOCS=1 .venv/bin/pytest tests/repo/test_configuration_doc.py"
    )


def test_no_meaning_is_given_twice_or_for_nothing() -> None:
    classes: list[type[RoleSettings] | type[TlsOptions]] = [
        StorageSettings,
        ServerSettings,
        ClientSettings,
        CliSettings,
        ZooKeeperSettings,
        TlsOptions,
    ]
    fields = {
        (cls, name): str(cls.model_fields[name].alias)
        for cls in classes
        for name in cls.__annotations__
        if name in cls.model_fields
    }
    documented = {fields[cls, name] for cls in classes for name in docstrings(cls) if (cls, name) in fields}
    # Said again for the command line, which only changes the default.
    assert not documented & set(MEANINGS)
    assert set(MEANINGS) <= set(fields.values())
    assert set(NO_EFFECT) == {key for cls in KEYS_OF_0_13_2 for key in cls.NO_EFFECT}


@pytest.mark.parametrize("role", KEYS_OF_0_13_2, ids=lambda role: role.__name__)
def test_safety_f1_every_key_of_0_13_2_is_known_and_documented(role: type[RoleSettings]) -> None:
    """Each key of the role is accepted, and docs/compatibility.md says what it does here."""
    keys = KEYS_OF_0_13_2[role]
    assert not keys - set(role.keys())
    text = (ROOT / "docs" / "compatibility.md").read_text()
    named = {
        key if ".ssl." not in key and not key.startswith("ssl.") else key[key.index("ssl.") + 4 :]
        for key in keys
    }
    assert not {key for key in named if f"`{key}`" not in text}
