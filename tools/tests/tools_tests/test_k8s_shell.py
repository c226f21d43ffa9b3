"""`waltz k8s shell`: the pod that it makes, what runs in it, and that it is gone afterwards. No Kubernetes
here; a program of the test is its kubectl."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tools_tests.kubernetes_fake import FakeKubernetes
from waltz_client.settings import ClientSettings
from waltz_cluster.config.settings import CliSettings
from waltz_operator.api.cluster_status import RunningImage
from waltz_operator.api.parse import parse_cluster
from waltz_operator.kube import kinds
from waltz_operator.kube.client import Object
from waltz_operator.resources.inputs import RenderInputs
from waltz_operator.resources.network import network_policies
from waltz_tools.__main__ import run
from waltz_tools.errors import ToolError
from waltz_tools.k8s import access
from waltz_tools.k8s.shell import ANNOTATION, image_of, shell_pod

ROOT = Path(__file__).resolve().parents[3]
LEDGER = yaml.safe_load((ROOT / "manifests/examples/ledger.yaml").read_text())
READY = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
SECRETS = {"server": "s", "storage": "t", "operator": "o"}


def cluster(**spec: Any) -> Any:
    metadata = {"name": "ledger", "namespace": "shop", "uid": "u"}
    return parse_cluster({**LEDGER, "metadata": metadata, "spec": {**LEDGER["spec"], **spec}})


class Running(FakeKubernetes):
    """Every pod that is made has this status."""

    status: Mapping[str, Any] = READY
    made: list[Object]

    async def create(self, obj: Mapping[str, Any]) -> Object:
        self.made = [await super().create({**obj, "status": self.status})]
        return self.made[0]

    def pods(self) -> list[str]:
        return [name for kind, _, name in self.objects if kind == "Pod"]


@pytest.fixture
def kubernetes(monkeypatch: pytest.MonkeyPatch) -> Running:
    fake = Running()
    fake.add(kinds.WALTZ_CLUSTER, "ledger", spec=LEDGER["spec"])
    monkeypatch.setattr(access, "open_session", fake.opener())
    return fake


@pytest.fixture
def kubectl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Writes down its arguments, and ends with the exit code in the file beside it."""
    program, said = tmp_path / "kubectl", tmp_path / "said"
    program.write_text(f'#!/bin/sh\necho "$@" > {said}\nexit $(cat {tmp_path}/code 2>/dev/null || echo 0)\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    return said


def test_a_command_runs_in_a_pod_that_is_gone_afterwards(kubernetes: Running, kubectl: Path) -> None:
    assert run(["k8s", "shell", "ledger", "--", "waltz", "tail", "-n", "1"]) == 0
    (pod,) = kubernetes.made
    name = pod["metadata"]["name"]
    assert kubectl.read_text() == f"--namespace default exec -i {name} -c shell -- waltz tail -n 1\n"
    assert kubernetes.pods() == []


def test_a_cluster_of_a_newer_definition_gets_a_shell_too(kubernetes: Running, kubectl: Path) -> None:
    kubernetes.add(kinds.WALTZ_CLUSTER, "newer", spec={**LEDGER["spec"], "ofTheNextVersion": True})
    assert run(["k8s", "shell", "newer"]) == 0


def test_the_exit_code_is_that_of_the_command(kubernetes: Running, kubectl: Path) -> None:
    (kubectl.parent / "code").write_text("7")
    assert run(["k8s", "shell", "ledger"]) == 7
    assert kubectl.read_text().endswith("-- sh\n")
    assert kubernetes.pods() == []


def test_a_pod_that_does_not_start_is_removed_and_says_why(
    kubernetes: Running, kubectl: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    waiting = {"reason": "ImagePullBackOff", "message": "no such image"}
    kubernetes.status = {"phase": "Pending", "containerStatuses": [{"state": {"waiting": waiting}}]}
    assert run(["k8s", "shell", "ledger", "--timeout", "1"]) == 1
    assert "does not start: ImagePullBackOff: no such image" in capsys.readouterr().err
    assert kubernetes.pods() == []
    assert not kubectl.exists()


def test_without_kubectl_no_pod_is_made(
    kubernetes: Running, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    assert run(["k8s", "shell", "ledger"]) == 1
    assert "kubectl, which is not on PATH" in capsys.readouterr().err
    assert not hasattr(kubernetes, "made")


def test_the_file_of_the_pod_is_one_that_a_client_takes(tmp_path: Path) -> None:
    for spec in ({}, {"tls": {"mode": "Disabled"}}):
        pod = shell_pod(cluster(**spec), "p", "i", None)
        path = tmp_path / "client.yaml"
        path.write_text(pod["metadata"]["annotations"][ANNOTATION])
        config = ClientSettings.from_file(path)
        assert config.cluster_root == "/waltz/shop/ledger"
        tls = config.zookeeper_tls()
        assert (tls is not None and tls.key_store == tls.trust_store == "/etc/waltz/tls") is not bool(spec)
        volumes = {volume["name"]: volume for volume in pod["spec"]["volumes"]}
        if spec:
            assert "tls" not in volumes
        else:
            assert volumes["tls"]["secret"]["secretName"] == "ledger-tls-client"


def test_a_pod_for_a_closed_zookeeper_has_its_credentials(tmp_path: Path) -> None:
    status = {"zookeeper": {"authentication": "Digest", "login": "Own"}}
    metadata = {"name": "ledger", "namespace": "shop", "uid": "u"}
    pod = shell_pod(parse_cluster({**LEDGER, "metadata": metadata, "status": status}), "p", "i", None)
    path = tmp_path / "client.yaml"
    path.write_text(pod["metadata"]["annotations"][ANNOTATION])
    config = ClientSettings.from_file(path)
    assert config.zookeeper_auth_file == "/etc/waltz/zookeeper-auth/auth"
    assert config.zookeeper_acl == "creator", "what an administrator creates is closed too"
    volumes = {volume["name"]: volume for volume in pod["spec"]["volumes"]}
    secret = volumes["zookeeper-auth"]["secret"]
    assert secret["secretName"] == "ledger-zookeeper-auth"
    assert secret["items"] == [{"key": "zookeeper.auth", "path": "auth"}]


def test_the_pod_is_restricted_ends_one_day_and_is_no_part_of_the_cluster() -> None:
    pod = shell_pod(cluster(), "p", "i", None)
    assert pod["spec"]["securityContext"]["runAsNonRoot"] is True
    assert pod["spec"]["containers"][0]["securityContext"]["readOnlyRootFilesystem"] is True
    assert pod["spec"]["activeDeadlineSeconds"] == 4 * 3600
    assert pod["metadata"]["labels"]["app.kubernetes.io/component"] == "client"
    assert pod["metadata"]["labels"]["waltz.dev/client"] == "true", "the managed ZooKeeper lets it in"
    assert "app.kubernetes.io/managed-by" not in pod["metadata"]["labels"]


def test_certificates_of_ones_own_are_named() -> None:
    own = cluster(tls={"mode": "Secret", "secrets": SECRETS})
    with pytest.raises(ToolError, match="pass --secret NAME"):
        shell_pod(own, "p", "i", None)
    volumes = shell_pod(own, "p", "i", "mine")["spec"]["volumes"]
    assert {"secretName": "mine", "defaultMode": 0o440} in [one.get("secret") for one in volumes]


@pytest.mark.parametrize(
    ("server", "tools"),
    [
        ("waltz-server:1", "waltz-tools:1"),
        ("r.example:5000/x/waltz-server:1", "r.example:5000/x/waltz-tools:1"),
        ("r.example/waltz-server", "r.example/waltz-tools"),
    ],
)
def test_the_image_is_next_to_that_of_the_servers(server: str, tools: str) -> None:
    made = cluster(images={**LEDGER["spec"]["images"], "server": server})
    assert image_of(made, None) == tools
    assert image_of(made, "other") == "other"


def test_the_image_follows_from_the_version_where_none_is_given() -> None:
    made = cluster(images={"registry": "r.example/x"}, version="0.1.0")
    assert image_of(made, None) == "r.example/x/waltz-tools:0.1.0"
    running = RunningImage(component="server", image="other/waltz-server:0.1.0@sha256:00", pods=2)
    seen = made._replace(status=made.status.model_copy(update={"running": (running,)}))
    assert image_of(seen, None) == "other/waltz-tools:0.1.0"


@pytest.mark.parametrize("server", ["ours:1", "waltz-server@sha256:00", "waltz-server:1@sha256:00"])
def test_an_image_that_is_not_known_is_asked_for(server: str) -> None:
    made = cluster(images={**LEDGER["spec"]["images"], "server": server})
    with pytest.raises(ToolError, match="pass --image"):
        image_of(made, None)


def test_an_administrator_has_the_operators_certificate_and_reaches_the_admin_port(tmp_path: Path) -> None:
    pod = shell_pod(cluster(), "p", "i", None, admin=True)
    volumes = {volume["name"]: volume for volume in pod["spec"]["volumes"]}
    assert volumes["tls"]["secret"]["secretName"] == "ledger-tls-operator"
    admin_port = next(
        rule["from"]
        for policy in network_policies(cluster(), RenderInputs())
        for rule in policy["spec"]["ingress"]
        if {"port": 55281, "protocol": "TCP"} in rule["ports"]
    )
    peers = [peer["podSelector"]["matchLabels"] for peer in admin_port]
    labels = pod["metadata"]["labels"].items()
    assert any(peer.items() <= labels for peer in peers), "a NetworkPolicy is in the way"
    path = tmp_path / "client.yaml"
    path.write_text(pod["metadata"]["annotations"][ANNOTATION])
    assert CliSettings.from_file(path).tls_settings("ssl").trust_store == "/etc/waltz/tls"
    with_own = {"mode": "Secret", "secrets": SECRETS}
    pod = shell_pod(cluster(tls=with_own), "p", "i", None, admin=True)
    volumes = {volume["name"]: volume for volume in pod["spec"]["volumes"]}
    assert volumes["tls"]["secret"]["secretName"] == SECRETS["operator"]
