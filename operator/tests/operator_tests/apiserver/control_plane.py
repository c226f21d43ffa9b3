"""A real kube-apiserver with its etcd, as two plain processes on loopback, found through
`KUBEBUILDER_ASSETS`.

Nothing else of Kubernetes runs: no controllers, no kubelet. What they would do is in `machinery`.
"""

import os
import secrets
import shutil
import signal
import ssl
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from kubernetes.aio.client import Configuration

from waltz_testkit.ports import free_ports

ASSETS = "KUBEBUILDER_ASSETS"
_READY_SECONDS = 60.0
_BINARIES = ("etcd", "kube-apiserver")


def missing() -> str | None:
    """Why the tests of this folder cannot run here, in one line; None when they can."""
    assets = os.environ.get(ASSETS)
    if not assets:
        return f"{ASSETS} is not set: no kube-apiserver to test against"
    lacking = [name for name in _BINARIES if not (Path(assets) / name).is_file()]
    return f"{assets} has no {', '.join(lacking)}" if lacking else None


@dataclass(frozen=True, slots=True)
class ControlPlane:
    """A running API server: `admin` may do everything (group system:masters)."""

    url: str
    admin_token: str
    ca_file: str

    def configuration(self, token: str | None = None) -> Configuration:
        """For a client that presents this token; the administrator's without one."""
        configuration = Configuration()
        configuration.host = self.url
        configuration.ssl_ca_cert = self.ca_file
        configuration.api_key["BearerToken"] = f"Bearer {token or self.admin_token}"
        return configuration

    def kubeconfig(self, token: str | None = None) -> dict[str, Any]:
        """The same as the contents of a kubeconfig."""
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {"name": "test", "cluster": {"server": self.url, "certificate-authority": self.ca_file}}
            ],
            "users": [{"name": "test", "user": {"token": token or self.admin_token}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
            "current-context": "test",
        }


def _service_account_key(path: Path) -> None:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )


@contextmanager
def _process(arguments: list[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as out:
        process = subprocess.Popen(arguments, stdout=out, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_ready(
    url: str, token: str, ca_file: Path, processes: list[subprocess.Popen[bytes]], log: Path
) -> None:
    deadline = time.monotonic() + _READY_SECONDS
    while time.monotonic() < deadline:
        if any(process.poll() is not None for process in processes):
            break
        try:
            context = ssl.create_default_context(cafile=str(ca_file))
            request = urllib.request.Request(f"{url}/readyz", headers={"Authorization": f"Bearer {token}"})
            with urllib.request.urlopen(request, timeout=2, context=context) as answer:
                if answer.status == 200:
                    return
        except OSError:
            time.sleep(0.1)  # the answer is what is waited for
    tail = log.read_text(errors="replace")[-2000:]
    raise RuntimeError(f"the kube-apiserver did not become ready:\n{tail}")


@contextmanager
def control_plane(directory: Path, *options: str) -> Iterator[ControlPlane]:
    """Start both, wait until the API server is ready, stop both. `options`: further ones of the API
    server."""
    assets = Path(os.environ[ASSETS])
    etcd_port, peer_port, port = free_ports(3)
    token = secrets.token_hex(16)
    (directory / "tokens.csv").write_text(f"{token},admin,admin,system:masters\n")
    _service_account_key(directory / "sa.key")
    with ExitStack() as stack:
        etcd = stack.enter_context(
            _process(
                [
                    str(assets / "etcd"),
                    f"--data-dir={directory / 'etcd'}",
                    f"--listen-client-urls=http://127.0.0.1:{etcd_port}",
                    f"--advertise-client-urls=http://127.0.0.1:{etcd_port}",
                    f"--listen-peer-urls=http://127.0.0.1:{peer_port}",
                    f"--initial-advertise-peer-urls=http://127.0.0.1:{peer_port}",
                    f"--initial-cluster=default=http://127.0.0.1:{peer_port}",
                    "--unsafe-no-fsync",
                    "--log-level=warn",
                ],
                directory / "etcd.log",
            )
        )
        server = stack.enter_context(
            _process(
                [
                    str(assets / "kube-apiserver"),
                    f"--etcd-servers=http://127.0.0.1:{etcd_port}",
                    "--bind-address=127.0.0.1",
                    f"--secure-port={port}",
                    f"--cert-dir={directory / 'certs'}",
                    f"--token-auth-file={directory / 'tokens.csv'}",
                    "--authorization-mode=RBAC",
                    "--service-account-issuer=https://kubernetes.default.svc",
                    f"--service-account-key-file={directory / 'sa.key'}",
                    f"--service-account-signing-key-file={directory / 'sa.key'}",
                    "--service-cluster-ip-range=10.96.0.0/16",
                    "--disable-admission-plugins=ServiceAccount",
                    "--max-requests-inflight=400",
                    "--watch-cache=true",
                    "--v=1",
                    *options,
                ],
                directory / "apiserver.log",
            )
        )
        ca_file = directory / "certs" / "apiserver.crt"
        url = f"https://127.0.0.1:{port}"
        _wait_ready(url, token, ca_file, [etcd, server], directory / "apiserver.log")
        yield ControlPlane(url, token, str(ca_file))
    shutil.rmtree(directory / "etcd", ignore_errors=True)
