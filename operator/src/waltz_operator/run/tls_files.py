"""The operator's own client certificates as files, because that is what TLS contexts are made from.

One directory per content, readable by this process only; a directory is removed when its cluster has another
one.
"""

import hashlib
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from waltz_protocol.aio.tls import TlsSettings

_NAMES = ("tls.crt", "tls.key", "ca.crt")
PREFIX = "operator.ssl"


class TlsFiles:
    """Owner of a temporary directory; `close` removes it."""

    def __init__(self, parent: str | None = None) -> None:
        self._root = Path(tempfile.mkdtemp(prefix="waltz-operator-tls-", dir=parent))
        self._present: dict[tuple[str, str], Path] = {}

    def settings(self, cluster: tuple[str, str], data: Mapping[str, bytes]) -> TlsSettings | None:
        """To connect with this certificate and these authorities; None while something is missing."""
        if any(not data.get(name) for name in _NAMES):
            return None
        content = b"\0".join(data[name] for name in _NAMES)
        directory = self._root / hashlib.sha256(content).hexdigest()
        if not directory.is_dir():
            directory.mkdir(mode=0o700)
            for name in _NAMES:
                path = directory / name
                path.touch(mode=0o600)
                path.write_bytes(data[name])
        before = self._present.get(cluster)
        self._present[cluster] = directory
        if before is not None and before not in self._present.values():
            shutil.rmtree(before, ignore_errors=True)
        return TlsSettings(key_store=str(directory), trust_store=str(directory), prefix=PREFIX)

    def forget(self, cluster: tuple[str, str]) -> None:
        """The cluster is gone."""
        before = self._present.pop(cluster, None)
        if before is not None and before not in self._present.values():
            shutil.rmtree(before, ignore_errors=True)

    def close(self) -> None:
        """Remove everything."""
        shutil.rmtree(self._root, ignore_errors=True)
