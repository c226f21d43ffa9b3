"""Specifications that are good or bad, and what the operator and the API server say of the bad ones.

`BAD` has every mistake that `waltz_operator.api.validate` knows. The API server refuses it with the same
sentence, but for those with `server`: what its schema says in its own words, or nothing (`OPERATOR_ONLY`),
where only the operator can know (ADR 25).
"""

from __future__ import annotations

from typing import NamedTuple

from operator_tests.resources.clusters import SECRETS, UID, VARIANTS, Spec, merged

OPERATOR_ONLY = ""


class Bad(NamedTuple):
    """A mistake: the change of the plain specification, the operator's line, what the server says."""

    changes: Spec
    line: str
    server: str | None = None

    @property
    def refusal(self) -> str:
        """What the API server says; empty: it takes the object."""
        return self.line.partition(": ")[2] if self.server is None else self.server


def groups(*entries: Spec) -> Spec:
    """A specification with these groups instead of `replicas`."""
    return {"replicas": None, "storage": {"groups": list(entries)}}


def nodes(*entries: Spec) -> Spec:
    """One with a group of these nodes."""
    return groups({"name": "1", "nodes": list(entries)})


def pods(spec: Spec) -> Spec:
    """One with this over the pod template of the storage nodes."""
    return {"storage": {"podTemplate": {"spec": spec}}}


def external(name: str = "0", **changes: object) -> Spec:
    """An external node."""
    return {"name": name, "external": True, "connectString": "h:1", "adminPort": 2, **changes}


def outside(connect_string: str) -> Spec:
    """One with its own ensemble."""
    return {"images": {"zookeeper": None}, "zookeeper": {"managed": None, "connectString": connect_string}}


_IMAGES = "spec.images: give version, or images.server, images.storage and, for a managed ZooKeeper, images.zookeeper"
_EITHER = "spec.zookeeper: give connectString or managed, exactly one of them"
_AUTH = "spec.zookeeper.auth: managed.authentication makes credentials of its own: give it or auth, not both"
_ROOT = "spec.zookeeper.root: . and .. cannot be parts of a path in ZooKeeper"
_ZOOKEEPER_TLS: Spec = {"zookeeper": {"managed": {"tls": "Enabled"}}}
_JOURNAL = "must be at least 4Mi and at most 4Gi"
_QUARTER = "the journal takes more than a quarter of a volume"
_PORT = "a port is a number from 1 to 65535"
_NODE = "spec.storage.groups[1].nodes[0]"
_BELONG = "connectString and adminPort belong to a node with external: true, which needs both"
_NOBODY = "spec.tls.allowedPeers: an empty list with mode Secret is nobody, not even the cluster itself: name its certificates as well, or leave the list out, which lets everybody in whose certificate the authority has signed"
_DOMAIN = "spec.servers.externalListener.domain: must be a DNS domain: labels of 1 to 63 lower-case letters, digits and hyphens, with single dots between them"
_BARE = "spec.servers.externalListener: the certificates of the servers do not have the addresses that they advertise: give domain, or, with address HostIP only, the IP addresses of the Kubernetes nodes in tls.extraNames"
_TLS = "spec.tls.allowedPeers: needs TLS: without it a peer has no name"
_POD = "spec.storage.podTemplate.spec"
_EXTRA = "spec.tls.extraNames: every entry must be a DNS name in ASCII (of an international one the form with xn--) or an IP address without a zone"
_LIFETIME = "spec.tls.authorityLifetimeHours: must be longer than certificateLifetimeHours"
_OWN = "is set by the operator: it follows from other fields of the specification"

BAD: list[Bad] = [
    Bad({"images": {"zookeeper": None}}, _IMAGES),
    Bad({"images": {"storage": None}}, _IMAGES),
    Bad({"images": None}, _IMAGES),
    Bad({"zookeeper": {"connectString": "h:1"}}, _EITHER),
    Bad({"zookeeper": {"managed": None}}, _EITHER),
    Bad({"zookeeper": {"auth": {"secretName": "s"}, "managed": {"authentication": "Digest"}}}, _AUTH),
    Bad({"zookeeper": {"auth": {"secretName": "s"}, "managed": {"authentication": "Optional"}}}, _AUTH),
    *(Bad({"zookeeper": {"root": root}}, _ROOT) for root in ("/a/../b", "/.", "/a/..", "/./a")),
    *(
        Bad(outside(text), f"spec.zookeeper.connectString: {_PORT}")
        for text in ("h:99999", "h:0", "h:1,h:65536", "h:00000,h:1", "[::1]:70000", "h:66000", "h:65600", "h:65540")
    ),
    *(
        Bad({"storage": {"size": "40Gi", "journal": {"size": size}}}, f"spec.storage.journal.size: {_JOURNAL}")
        for size in ("1Mi", "5Gi")
    ),
    Bad(
        {"storage": {"size": "1Gi", "journal": {"size": "512Mi"}}},
        f"spec.storage.size: {_QUARTER}: storage.size must be at least 4 times journal.size",
    ),
    Bad(
        {
            "replicas": None,
            "storage": {"groups": [{"name": "1"}, {"name": "2", "size": "400Mi"}], "journal": {}},
        },
        f"spec.storage.groups: {_QUARTER}: the size of a group must be at least 4 times journal.size",
    ),
    Bad(
        {"storage": {"journal": {"volume": {"size": "255Mi"}}}},
        "spec.storage.journal.volume: the volume of the journal must have at least 2 times the size of the journal",
    ),
    Bad(
        {"storage": {"journal": {"mode": "Disabled"}, "config": {"storage.journal.enabled": True}}},
        "spec.storage.journal: journal and the keys storage.journal.* of config say the same: give one of them",
        OPERATOR_ONLY,
    ),
    Bad({"storage": {"groups": [{"name": "1"}]}}, "spec.replicas: give replicas (that many groups with one node each) or storage.groups, not both"),
    Bad(groups({"name": "1"}, {"name": "1"}), "spec.storage.groups: there are two groups 1", "Duplicate value"),
    Bad(groups({"name": "1", "id": 4}, {"name": "2", "id": 4}), "spec.storage.groups: two groups have the same id"),
    Bad(groups({"name": "1", "count": 2, "nodes": [{"name": "0"}]}), "spec.storage.groups[1].count: give count or nodes, not both"),
    Bad(nodes({"name": "0"}, {"name": "0"}), "spec.storage.groups[1].nodes: there are two nodes 0", "Duplicate value"),
    Bad(nodes({"name": "0", "external": True}), f"{_NODE}: {_BELONG}"),
    Bad(nodes({"name": "0", "external": True, "adminPort": 5}), f"{_NODE}: {_BELONG}"),
    Bad(nodes({"name": "0", "adminPort": 5}), f"{_NODE}: {_BELONG}"),
    Bad(nodes({"name": "0", "connectString": "h:5"}), f"{_NODE}: {_BELONG}"),
    Bad(nodes(external(adminPort=1)), f"{_NODE}.adminPort: must differ from the storage port"),
    Bad(nodes(external(connectString="h:0")), f"{_NODE}.connectString: {_PORT}"),
    Bad(nodes(external(connectString="h:65536")), f"{_NODE}.connectString: {_PORT}"),
    Bad(nodes(external(), external("1")), "spec.storage.groups: two nodes have the same connect string"),
    Bad(groups({"name": "1", "nodes": [external()]}, {"name": "2", "nodes": [external()]}), "spec.storage.groups: two nodes have the same connect string", OPERATOR_ONLY),
    Bad({"tls": {"mode": "Secret"}}, "spec.tls.secrets: goes with mode Secret, which needs it"),
    Bad({"tls": {"secrets": SECRETS}}, "spec.tls.secrets: goes with mode Secret, which needs it"),
    Bad({**_ZOOKEEPER_TLS, "tls": {"mode": "Disabled"}}, "spec.zookeeper: TLS of the managed ZooKeeper needs certificates: tls.mode must not be Disabled"),
    Bad({**_ZOOKEEPER_TLS, "tls": {"mode": "Secret", "secrets": SECRETS}}, "spec.zookeeper: TLS of the managed ZooKeeper with your Secrets needs one more: tls.secrets.zookeeper"),
    Bad({"console": {"enabled": True}}, "spec.images: the console needs an image: give version, or images.console"),
    Bad(
        merged(VARIANTS["console"], {"tls": {"mode": "Secret", "secrets": SECRETS}}),
        "spec.tls: the console with your Secrets needs one more: tls.secrets.console",
    ),
    Bad({"console": {"podTemplate": {"spec": {"hostname": "h"}}}}, "spec.console.podTemplate.spec.hostname: is the operator's own"),
    Bad({"tls": {"issuerRef": {"name": "i"}}}, "spec.tls.issuerRef: goes with mode CertManager, which needs it"),
    Bad({"tls": {"mode": "CertManager"}}, "spec.tls.issuerRef: goes with mode CertManager, which needs it"),
    *(Bad({"tls": {"mode": "Disabled", "allowedPeers": {field: ["a"]}}}, _TLS) for field in ("server", "storage", "admin")),
    *(Bad({"tls": {"mode": "Secret", "secrets": SECRETS, "allowedPeers": {field: []}}}, _NOBODY) for field in ("server", "storage", "admin")),
    *(
        Bad({"servers": {"externalListener": {"domain": domain}}}, _DOMAIN)
        for domain in ("w..example.com", f"{'x' * 64}.example.com", "w.example.com.", "-w.example", "w-.example", "W.example", ".", "")
    ),
    *(
        Bad({"servers": {"externalListener": listener}, "tls": tls}, _BARE)
        for listener, tls in (
            ({}, {}), ({"hostPort": 5}, {"extraNames": ["w.example.com", "1.2.3"]}), ({}, {"mode": "CertManager", "issuerRef": {"name": "i"}}),
            ({"address": "PodIP"}, {}), ({"address": "PodIP"}, {"extraNames": ["10.0.0.9"]}),
        )
    ),
    Bad({"tls": {"allowedPeers": {"storage": [" "]}}}, "spec.tls.allowedPeers.storage: a name is empty"),
    Bad({"tls": {"allowedPeers": {"server": ["a", ""]}}}, "spec.tls.allowedPeers.server: a name is empty"),
    Bad({"tls": {"clientAuthentication": "None", "allowedPeers": {"server": ["a"]}}}, "spec.tls.allowedPeers.server: needs clientAuthentication: Required"),
    *(
        Bad({"tls": {"extraNames": ["w.example.com", name]}}, _EXTRA)
        for name in ("b\u00fccher.example", "", "a b", "fe80::1%eth0", "https://w.example.com")
    ),
    Bad({"tls": {"extraNames": ["a:b"]}}, _EXTRA, OPERATOR_ONLY),
    Bad({"tls": {"authorityLifetimeHours": 2160}}, _LIFETIME),
    Bad({"tls": {"authorityLifetimeHours": 5, "certificateLifetimeHours": 6}}, _LIFETIME),
    *(
        Bad(pods({field: value}), f"{_POD}.{field}: is the operator's own{hint}")
        for field, value, hint in (
            ("hostname", "h", ""), ("subdomain", "s", ""), ("restartPolicy", "Never", ""),
            ("terminationGracePeriodSeconds", 1, ": use drainSeconds"),
        )
    ),
    Bad({"servers": {"podTemplate": {"spec": {"hostname": "h"}}}}, "spec.servers.podTemplate.spec.hostname: is the operator's own"),
    Bad({"copyJobs": {"podTemplate": {"spec": {"restartPolicy": "Always"}}}}, "spec.copyJobs.podTemplate.spec.restartPolicy: is the operator's own"),
    Bad({"zookeeper": {"managed": {"podTemplate": {"spec": {"subdomain": "s"}}}}}, "spec.zookeeper.managed.podTemplate.spec.subdomain: is the operator's own"),
    *(
        Bad(pods({"volumes": [{"name": "mine"}, {"name": name}]}), f"{_POD}.volumes: config, data, tls, tmp, waltz-journal, zookeeper-auth are the operator's own")
        for name in ("config", "data", "tls", "tmp", "waltz-journal", "zookeeper-auth")
    ),
    *(Bad(pods({field: [{"image": "i"}]}), f"{_POD}.{field}: every entry needs a name") for field in ("containers", "initContainers", "volumes")),
    *(
        Bad(pods({field: value}), f"{_POD}.{field}: must be a list of objects", f"{_POD}.{field}")
        for field in ("tolerations", "topologySpreadConstraints", "containers", "initContainers", "volumes")
        for value in ("all", ["all"])
    ),
    Bad({"storage": {"config": {"storage.prot": 1}}}, "spec.storage.config[storage.prot]: is not a key of this role; did you mean storage.port?", OPERATOR_ONLY),
    Bad({"storage": {"config": {"storage.disk.threads": "many"}}}, "spec.storage.config[storage.disk.threads]: 'many': must be a number", OPERATOR_ONLY),
    Bad({"servers": {"config": {"server.port": 1}}}, f"spec.servers.config[server.port]: {_OWN}", OPERATOR_ONLY),
]  # fmt: skip

GOOD: list[Spec] = [
    *VARIANTS.values(),
    {"zookeeper": {"auth": {"secretName": "s"}, "managed": {"authentication": "None"}}},
    *({"zookeeper": {"root": root}} for root in ("/a", "/a.b/..c", "/...", "/.a/b.")),
    *(outside(text) for text in ("h:1", "h:65535", "[::1]:2181,h:00001", "h:10000,g:65499", "h:65530", "zk.example.com.:1")),
    groups({"name": "1", "id": 4}, {"name": "2", "id": 5}, {"name": "3"}),
    nodes(external(), external("1", connectString="g:1"), {"name": "2"}),
    nodes(external(connectString="h:12", adminPort=2)),
    {"storage": {"size": "200Mi", "journal": {"volume": {"size": "256Mi", "storageClassName": "fast"}}}},
    groups({"name": "1", "nodes": [external()]}, {"name": "2", "nodes": [external(connectString="h:2", adminPort=1)]}),
    {"tls": {"mode": "Disabled", "authorityLifetimeHours": 2160}},
    {"tls": {"extraNames": ["w.example.com", "*.Example.com", "my_host", "xn--bcher-kva.example", "w.example.com.", "10.0.0.9", "2001:DB8::1", "::ffff:10.0.0.1", "1.2.3"]}},
    {"tls": {"mode": "Disabled", "clientAuthentication": "None"}},
    {"tls": {"allowedPeers": {"server": [], "storage": [], "admin": []}}},
    *({"servers": {"externalListener": {"domain": domain}}} for domain in ("w", "w.example.com", "xn--a--b.example", f"{'x' * 63}.7")),
    *({"servers": {"externalListener": {}}, "tls": {"extraNames": ["w.example.com", name]}} for name in ("10.0.0.9", "2001:DB8::1", "::ffff:10.0.0.1")),
    *({"servers": {"externalListener": {"address": address}}, "tls": {"mode": "Disabled"}} for address in ("HostIP", "PodIP")),
    *({"servers": {"externalListener": {"address": address}}, "tls": {"mode": "Secret", "secrets": SECRETS}} for address in ("HostIP", "PodIP")),
    {"tls": {"clientAuthentication": "None", "allowedPeers": {"storage": ["a b"]}}},
    pods({"volumes": [{"name": "mine", "emptyDir": {}}], "containers": [{"name": "aside", "image": "i"}]}),
    pods({"tolerations": [{"operator": "Exists"}], "topologySpreadConstraints": [], "hostNetwork": False}),
    {"zookeeper": {"adoptKey": UID, "root": "/old"}},
    {"console": {"enabled": False}},
    {"version": "0.1.0", "console": {"enabled": True}},
]  # fmt: skip

_ONE = "spec: give exactly one of move, drain, replace, rebalance"
BAD_MIGRATIONS: list[Bad] = [
    Bad({}, _ONE),
    Bad({"drain": {"node": "1-0"}, "replace": {"node": "1-0"}}, _ONE),
    Bad({"move": {"from": "1-0", "to": "1-0"}}, "spec.move.to: is the node that has them"),
    Bad({"move": {"from": "1-0", "to": "2-0"}}, "spec.move.to: must be in the group of the node that has them: a group is one full copy"),
    Bad({"move": {"from": "1-0", "to": "1-1", "partitions": [3, 3]}}, "spec.move.partitions: 3 is there twice", "Duplicate value"),
]  # fmt: skip
GOOD_MIGRATIONS: list[Spec] = [
    {"drain": {"node": "1-0"}},
    {"replace": {"node": "1-0"}},
    {"rebalance": {"group": "1"}},
    {"move": {"from": "1-0", "to": "1-1", "partitions": [3, 4]}},
]
