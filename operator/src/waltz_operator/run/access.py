"""How a cluster's ZooKeeper and processes are reached, as its Secrets say."""

from __future__ import annotations

from dataclasses import dataclass, field

from waltz_operator.model.snapshot import Unknown
from waltz_operator.run.zookeeper_sessions import Ensemble
from waltz_operator.tls.secrets import TlsSecrets
from waltz_protocol.aio.tls import TlsSettings


@dataclass(frozen=True, slots=True)
class Access:
    """How to reach a cluster's processes. `tls` None: the Secret with the operator's certificate is not
    complete yet."""

    ensemble: Ensemble | Unknown
    tls: TlsSettings | None
    secrets: TlsSecrets = field(default_factory=TlsSecrets)
    auth_hash: str = ""
    """Digest of the credentials for ZooKeeper; empty without any."""
