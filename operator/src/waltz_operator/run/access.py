"""How a cluster's ZooKeeper and processes are reached, as its Secrets say."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

from waltz_operator.model.snapshot import Unknown
from waltz_operator.plan.zookeeper_export import Exports
from waltz_operator.plan.zookeeper_secret import LoginSecret
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
    login: LoginSecret = field(default_factory=LoginSecret)
    """Those that the operator makes for a managed ensemble."""

    console_token: bool = False
    """Whether the Secret of the console has a token."""
    exports: Exports = field(default_factory=Exports)
    """Copies of the records in ZooKeeper; not read where none are wanted."""

    @property
    def credentials(self) -> str:
        """Their digest; empty without any."""
        return digest_of(self.login.value)


def digest_of(credentials: str | None) -> str:
    """Of credentials for ZooKeeper; empty for none."""
    return hashlib.sha256(credentials.encode()).hexdigest()[:16] if credentials else ""
