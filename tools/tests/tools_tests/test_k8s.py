"""`waltz k8s`: what is shown, what is asked for, what it refuses in one line. No Kubernetes here."""

import importlib.util
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from tools_tests.kubernetes_fake import FakeKubernetes
from waltz_operator.api.metadata import CLUSTER_UID
from waltz_operator.kube import kinds
from waltz_operator.kube.errors import KubeError
from waltz_tools.__main__ import run
from waltz_tools.k8s import access, logs
from waltz_tools.k8s.changes import Wish, migration_body
from waltz_tools.k8s.redact import REMOVED, redact, redact_text

EXAMPLES = Path(__file__).resolve().parents[3] / "manifests" / "examples"
STATUS = {
    "conditions": [{"type": "Available", "status": "True", "reason": "AsWanted", "message": "fine"}],
    "replicas": "3/3",
    "serverCounts": "2/2",
    "partitions": {"total": 4, "healthy": 4},
    "nodes": [{"name": "1-0", "phase": "Running", "ready": True, "partitions": 4, "worstLag": 0}],
    "operation": {"kind": "RestartStorage", "step": "wait", "target": "1-0"},
}
PLAN = {
    "actions": [{"kind": "DeletePod", "line": "restart x", "destructive": True}],
    "blocked": [],
    "migrations": {"m": {"actions": [], "blocked": []}},
}


@pytest.fixture
def kubernetes(monkeypatch: pytest.MonkeyPatch) -> FakeKubernetes:
    fake = FakeKubernetes()
    fake.add(kinds.WALTZ_CLUSTER, "ledger", spec={"paused": False}, status=dict(STATUS))
    monkeypatch.setattr(access, "open_session", fake.opener())
    return fake


def output(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    assert run(["k8s", *arguments, "--output", "json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_status_shows_conditions_nodes_and_what_is_under_way(
    kubernetes: FakeKubernetes, capsys: pytest.CaptureFixture[str]
) -> None:
    found = output(capsys, "status", "ledger")
    assert found["clusters"][0]["partitions"] == "4/4"
    assert found["nodes"][0]["node"] == "1-0"
    assert found["operation"][0]["kind"] == "RestartStorage"
    assert output(capsys, "status")["clusters"][0]["name"] == "ledger"
    assert run(["k8s", "status", "ledger"]) == 0
    assert "RestartStorage" in capsys.readouterr().out


def test_status_of_a_cluster_that_is_not_available_ends_with_3(
    kubernetes: FakeKubernetes, capsys: pytest.CaptureFixture[str]
) -> None:
    kubernetes.add(kinds.WALTZ_CLUSTER, "new")
    assert run(["k8s", "status", "new"]) == 3
    assert run(["k8s", "status", "nothing"]) == 1
    assert "there is no WaltzCluster nothing in namespace default" in capsys.readouterr().err


def test_the_plan_is_asked_of_a_running_operator(
    kubernetes: FakeKubernetes, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["k8s", "plan", "ledger"]) == 1
    assert "no operator runs in namespace waltz-system" in capsys.readouterr().err
    labels = {"app.kubernetes.io/name": "waltz-operator"}
    kubernetes.add(kinds.POD, "old", "waltz-system", labels=labels, status={"phase": "Failed"})
    kubernetes.add(kinds.POD, "op", "waltz-system", labels=labels, status={"phase": "Running"})
    kubernetes.answers = [f"a log line\n{json.dumps(PLAN)}\n"]
    assert output(capsys, "plan", "ledger") == PLAN
    assert list(kubernetes.commands[0][1:5]) == ["plan", "ledger", "--namespace", "default"]
    blocked = {"what": "restart", "reason": "NoQuorum", "partition": 3, "text": "partition 3 has no quorum"}
    kubernetes.answers = [json.dumps({**PLAN, "blocked": [blocked]})]
    assert run(["k8s", "plan", "ledger", "-f", str(EXAMPLES / "ledger.yaml")]) == 3
    assert "partition 3 has no quorum" in capsys.readouterr().err
    command = list(kubernetes.commands[1])
    assert json.loads(command[command.index("--spec") + 1])["partitions"]
    kubernetes.answers = ["nonsense"]
    assert run(["k8s", "plan", "ledger"]) == 1
    assert "gave no plan" in capsys.readouterr().err
    kubernetes.answers = [KubeError("exec in waltz-system/op: not permitted")]
    assert run(["k8s", "plan", "ledger"]) == 1
    assert capsys.readouterr().err == "Error: exec in waltz-system/op: not permitted\n"


def test_an_upgrade_is_planned_or_begun_or_refused(
    kubernetes: FakeKubernetes, capsys: pytest.CaptureFixture[str]
) -> None:
    labels = {"app.kubernetes.io/name": "waltz-operator"}
    kubernetes.add(kinds.POD, "op", "waltz-system", labels=labels, status={"phase": "Running"})
    spec = kubernetes.objects["WaltzCluster", "default", "ledger"]["spec"]
    spec["images"] = {}
    step = {
        "pod": "ledger-storage-1-0-0",
        "component": "storage",
        "from": "a",
        "to": "b",
        "why": "c",
        "waits": "",
    }
    kubernetes.answers = [json.dumps({**PLAN, "restarts": [step]})]
    found = output(capsys, "upgrade", "ledger", "0.1.0", "--plan")
    assert found == {"version": "0.1.0", "restarts": [step], "refused": ""}
    command = list(kubernetes.commands[0])
    assert json.loads(command[command.index("--spec") + 1])["version"] == "0.1.0"
    assert "version" not in spec
    kubernetes.answers = [json.dumps({**PLAN, "restarts": [step]})]
    output(capsys, "upgrade", "ledger", "0.1.0")
    assert kubernetes.objects["WaltzCluster", "default", "ledger"]["spec"]["version"] == "0.1.0"
    valid = {"type": "Valid", "status": "False", "message": "go to 0.2, first"}
    kubernetes.answers = [json.dumps({**PLAN, "restarts": [], "status": {"conditions": [valid]}})]
    assert run(["k8s", "upgrade", "ledger", "0.3.0"]) == 1
    assert "go to 0.2, first" in capsys.readouterr().err
    assert kubernetes.objects["WaltzCluster", "default", "ledger"]["spec"]["version"] == "0.1.0"
    kubernetes.answers = [json.dumps(PLAN)]
    assert run(["k8s", "upgrade", "ledger", "0.1.0"]) == 1
    assert "the operator knows no versions" in capsys.readouterr().err


def test_an_upgrade_does_not_pass_over_explicit_images(
    kubernetes: FakeKubernetes, capsys: pytest.CaptureFixture[str]
) -> None:
    labels = {"app.kubernetes.io/name": "waltz-operator"}
    kubernetes.add(kinds.POD, "op", "waltz-system", labels=labels, status={"phase": "Running"})
    spec = kubernetes.objects["WaltzCluster", "default", "ledger"]["spec"]
    spec["images"] = {"server": "mine:1", "storage": "mine:1"}
    kubernetes.answers = [json.dumps({**PLAN, "restarts": []})]
    assert run(["k8s", "upgrade", "ledger", "0.1.0"]) == 1
    assert "images.server, images.storage" in capsys.readouterr().err
    assert "version" not in spec


def test_a_migration_is_made_as_it_was_said(
    kubernetes: FakeKubernetes, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--move", "1-0:1-1", "-p", "0-1", "--name", "m", "--rate-limit", "0", "--dry-run"]
    output(capsys, "migrate", "ledger", *arguments)
    body = kubernetes.objects["WaltzMigration", "default", "m"]
    assert body["spec"] == {
        "cluster": "ledger",
        "move": {"from": "1-0", "to": "1-1", "partitions": [0, 1]},
        "dryRun": True,
        "rateLimitBytesPerSecond": 0,
    }
    assert run(["k8s", "migrate", "ledger", "--drain", "1-0", "--name", "m"]) == 1
    assert "exists already" in capsys.readouterr().err
    body["status"] = {"phase": "Failed", "message": "no room"}
    for wrong in (
        [],
        ["--move", "1-0"],
        ["--drain", "1-0", "-p", "1"],
        ["--drain", "1-0", "--rebalance", "1"],
        ["--drain", "1-0", "--by-bytes"],
    ):
        assert run(["k8s", "migrate", "ledger", *wrong]) == 2
    assert run(["k8s", "migrate", "ledger", "--drain", "not a node"]) == 1
    assert "spec.drain.node" in capsys.readouterr().err
    output(capsys, "migrate", "ledger", "--rebalance", "1", "--by-bytes", "--name", "even")
    assert kubernetes.objects["WaltzMigration", "default", "even"]["spec"]["rebalance"] == {
        "group": "1",
        "by": "Bytes",
    }


def test_bodies_of_all_migrations_are_what_the_api_takes() -> None:
    for wish in (Wish(drain="1-0"), Wish(replace="1-0"), Wish(rebalance="1")):
        spec = migration_body("c", "n", "m", wish)["spec"]
        assert len(spec) == 2


def test_waiting_for_a_migration_tells_its_end(
    kubernetes: FakeKubernetes, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    created = kubernetes.create

    async def create(obj: Any) -> Any:
        body = await created(obj)
        body["status"] = {"phase": "Failed" if "drain" in body["spec"] else "Completed", "message": "so"}
        return body

    monkeypatch.setattr(kubernetes, "create", create)
    assert (
        output(capsys, "migrate", "ledger", "--rebalance", "1", "--name", "a", "--wait")["phase"]
        == "Completed"
    )
    assert run(["k8s", "migrate", "ledger", "--drain", "1-0", "--name", "b", "--wait"]) == 1
    assert "migration b: Failed: so" in capsys.readouterr().err


def test_restart_and_pause_change_one_thing(
    kubernetes: FakeKubernetes, capsys: pytest.CaptureFixture[str]
) -> None:
    output(capsys, "restart", "ledger", "storage")
    assert list(kubernetes.patches[0]["metadata"]["annotations"]) == ["waltz.dev/restart-storage"]
    assert run(["k8s", "restart", "ledger", "everything"]) == 1
    assert output(capsys, "pause", "ledger")["changed"] is True
    assert output(capsys, "pause", "ledger")["changed"] is False
    assert output(capsys, "pause", "ledger", "--resume")["changed"] is True
    assert kubernetes.objects["WaltzCluster", "default", "ledger"]["spec"]["paused"] is False


def test_the_report_holds_what_can_be_read_and_no_secret(
    kubernetes: FakeKubernetes,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    async def load(*_: object) -> None:
        return None

    monkeypatch.setattr("waltz_operator.kube.config.load", load)
    monkeypatch.setattr(logs, "ApiPodLogs", lambda _: kubernetes)
    labels = {"app.kubernetes.io/instance": "ledger"}
    config = {
        "waltz-server.yml": "server.port: 1\nserver.ssl.keyStore.password: hush\nzookeeper.auth: me:hush\n"
    }
    kubernetes.add(kinds.CONFIG_MAP, "c", labels=labels, data=config)
    pod = {"containers": [{"name": "server", "env": [{"name": "DB_PASSWORD", "value": "hush"}]}]}
    state = {"containerStatuses": [{"name": "server", "restartCount": 1}]}
    kubernetes.add(kinds.POD, "p", labels=labels, spec=pod, status=state)
    kubernetes.add(kinds.SECRET, "s", labels=labels, data={"tls.key": "hush"})
    kubernetes.log = "connecting to https://me:hush@host\npassword: hush"
    kubernetes.forbidden = {"StatefulSet"}
    path = tmp_path / "bundle.tar.gz"
    found = output(capsys, "report", "ledger", "-f", str(path))
    assert {"cluster.yaml", "events.yaml", "logs/p.server.log", "logs/p.server.previous.log"} <= set(
        found["files"]
    )
    with tarfile.open(path) as archive:
        texts = {name: archive.extractfile(name) for name in archive.getnames()}
        contents = {name: file.read().decode() for name, file in texts.items() if file is not None}
    assert "hush" not in "".join(contents.values())
    assert "server.port: 1" in contents["bundle/objects/configmaps.yaml"]
    assert "forbidden" in contents["bundle/objects/statefulsets.yaml"]
    assert run(["k8s", "report", "ledger", "-f", str(path)]) == 1
    assert "exists already" in capsys.readouterr().err


def test_names_of_secrets_stay_and_their_contents_go() -> None:
    kept = {"secretName": "ledger-tls", "clientSecret": "ledger-tls-client", "secret": {"secretName": "x"}}
    assert redact(kept) == kept
    assert redact({"password": "x", "list": [{"token": "y"}], "n": 1}) == {
        "password": REMOVED,
        "list": [{"token": REMOVED}],
        "n": 1,
    }
    key = "-----BEGIN PRIVATE KEY-----\nabc\n-----END PRIVATE KEY-----"
    assert (
        redact_text(f"a\n{key}\nAuthorization: Bearer abcdefghij.klm")
        == f"a\n{REMOVED}\nAuthorization: Bearer {REMOVED}"
    )


def test_rendered_manifests_need_no_operator(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    example = EXAMPLES / "ledger.yaml"
    assert run(["k8s", "render", str(example)]) == 2
    assert "--certificates" in capsys.readouterr().err
    assert run(["k8s", "render", str(example), "--certificates", "-n", "books"]) == 0
    objects = list(yaml.safe_load_all(capsys.readouterr().out))
    names = {(one["kind"], one["metadata"]["name"]) for one in objects}
    assert {("Secret", "ledger-tls-storage"), ("StatefulSet", "ledger-storage-1-0")} <= names
    assert {one["metadata"]["namespace"] for one in objects} == {"books"}
    assert not [one for one in objects if "ownerReferences" in one["metadata"]]
    assert not [one for one in objects if CLUSTER_UID in (one["metadata"].get("annotations") or {})]
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text(example.read_text().replace("partitions:", "partition:"))
    assert run(["k8s", "render", str(wrong), "--certificates"]) == 1
    assert capsys.readouterr().err.count("\n") == 1


def test_without_the_extra_it_says_how_to_get_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert run(["k8s", "status"]) == 1
    assert capsys.readouterr().err == (
        "Error: waltz k8s needs the operator's library: install waltz-tools with its extra k8s (docs/install.md)\n"
    )
