"""Key stores as 0.13.2 has them: a Java key store with the key of every role, and one with the authority."""

import shutil
import socket
import subprocess
from pathlib import Path

from tests.integration.authority import PASSWORD, Authority, MakeKey, elliptic

_SECONDS = 60.0


def make(directory: Path, *names: str, make_key: MakeKey = elliptic) -> Authority:
    """`server.jks` and `trust.jks` in the directory, which is made; the authority. The certificate is for
    these names; for all that this machine has, if there are none."""
    directory.mkdir(parents=True)
    authority = Authority(directory, make_key=make_key)
    here = {"localhost", "127.0.0.1", socket.gethostname(), socket.getfqdn()}
    source = authority.pkcs12("server", *(names or sorted(here)))
    keytool = shutil.which("keytool")
    assert keytool is not None, "a JDK has keytool"
    new = ["-deststoretype", "JKS", "-deststorepass", PASSWORD]
    old = ["-srckeystore", source, "-srcstoretype", "PKCS12", "-srcstorepass", PASSWORD]
    trusted = ["-file", authority.trust_store, "-alias", "ca", "-storetype", "JKS", "-storepass", PASSWORD]
    for words in (
        ["-importkeystore", *old, "-destkeystore", str(directory / "server.jks"), *new],
        ["-importcert", *trusted, "-keystore", str(directory / "trust.jks")],
    ):
        done = subprocess.run(
            [keytool, "-noprompt", *words], check=False, capture_output=True, text=True, timeout=_SECONDS
        )
        assert done.returncode == 0, done.stdout + done.stderr
    return authority


def keys(directory: Path, suffix: str, kind: str) -> dict[str, object]:
    """The keys below a prefix for the stores of one format: ("jks", "JKS") or ("p12", "PKCS12")."""
    found: dict[str, object] = {}
    for store, name in (("keyStore", "server"), ("trustStore", "trust")):
        found[f"{store}.location"] = str(directory / f"{name}.{suffix}")
        found[f"{store}.password"] = PASSWORD
        found[f"{store}.type"] = kind
    return found
