"""`waltz k8s console`: the link, and the port that kubectl forwards; a program of the test is its kubectl."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest
import yaml

from tools_tests.kubernetes_fake import FakeKubernetes
from tools_tests.test_k8s_shell import ROOT, kubectl  # noqa: F401 - a fixture
from waltz_operator.kube import kinds
from waltz_tools.__main__ import run
from waltz_tools.k8s import access

SPEC = yaml.safe_load((ROOT / "manifests/examples/console.yaml").read_text())["spec"]
TOKEN = "a-token-of-a-test-with-a-length"
READY = {"ready": True, "address": "https://x/", "tokenSecret": "ledger-console-token"}


@pytest.fixture
def kubernetes(monkeypatch: pytest.MonkeyPatch) -> FakeKubernetes:
    fake = FakeKubernetes()
    fake.add(kinds.WALTZ_CLUSTER, "ledger", spec=SPEC, status={"console": READY})
    data = {"token": base64.b64encode(TOKEN.encode()).decode()}
    fake.add(kinds.SECRET, "ledger-console-token", data=data)
    monkeypatch.setattr(access, "open_session", fake.opener())
    return fake


def test_it_prints_the_link_and_forwards_the_port(
    kubernetes: FakeKubernetes,
    kubectl: Path,  # noqa: F811
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["k8s", "console", "ledger", "--port", "9000"]) == 0
    assert capsys.readouterr().out == f"console: https://localhost:9000/#token={TOKEN}\n"
    assert kubectl.read_text() == "--namespace default port-forward service/ledger-console 9000:8090\n"


def test_a_cluster_without_tls_has_a_console_without(
    kubernetes: FakeKubernetes,
    kubectl: Path,  # noqa: F811
    capsys: pytest.CaptureFixture[str],
) -> None:
    plain = {**SPEC, "tls": {"mode": "Disabled"}, "zookeeper": {"managed": {}}}
    kubernetes.add(kinds.WALTZ_CLUSTER, "ledger", spec=plain, status={"console": READY})
    assert run(["k8s", "console", "ledger"]) == 0
    assert capsys.readouterr().out == f"console: http://localhost:8090/#token={TOKEN}\n"


@pytest.mark.parametrize(
    ("spec", "status", "said"),
    [
        ({**SPEC, "console": {}}, {}, "ledger has no console: set spec.console.enabled to true"),
        (SPEC, {}, "the console of ledger is not ready"),
        (SPEC, {"console": {"message": "c-x: ImagePullBackOff"}}, "is not ready: c-x: ImagePullBackOff"),
    ],
)
def test_what_is_in_the_way_is_one_sentence(
    kubernetes: FakeKubernetes,
    kubectl: Path,  # noqa: F811
    capsys: pytest.CaptureFixture[str],
    spec: dict[str, object],
    status: dict[str, object],
    said: str,
) -> None:
    kubernetes.add(kinds.WALTZ_CLUSTER, "ledger", spec=spec, status=status)
    assert run(["k8s", "console", "ledger"]) == 1
    assert said in capsys.readouterr().err
    assert not kubectl.exists()


def test_a_secret_without_a_token_is_named(
    kubernetes: FakeKubernetes,
    kubectl: Path,  # noqa: F811
    capsys: pytest.CaptureFixture[str],
) -> None:
    kubernetes.add(kinds.SECRET, "ledger-console-token", data={"token": "?"})
    assert run(["k8s", "console", "ledger"]) == 1
    assert "the Secret ledger-console-token holds no token" in capsys.readouterr().err
