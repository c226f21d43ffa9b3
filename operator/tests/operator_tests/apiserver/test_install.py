"""The lines of docs/operator.md that install, upgrade and remove the operator, on a real API server.

No pod runs on it, so what the pod of `helm test` runs is run as a process.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from operator_tests.api.install_forms import CHART, ROOT, helm, kubectl
from operator_tests.apiserver.control_plane import control_plane, missing

DEFINITION = "waltzclusters.waltz.dev"
Run = Callable[..., str]
CHECK = CHART / "files" / "check.py"


class Answers(BaseHTTPRequestHandler):
    """An operator that answers."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """Run a line with helm and kubectl of this API server; its output."""
    reason = missing()
    programs = {"helm": helm(), "kubectl": kubectl()}
    for name, found in programs.items():
        reason = reason or (None if found else f"there is no {name}")
    if reason is not None:
        pytest.skip(reason)
    directory = tmp_path_factory.mktemp("install")
    with control_plane(directory) as control:
        (directory / "kubeconfig").write_text(json.dumps(control.kubeconfig()))
        (directory / "token").write_text(control.admin_token)
        shutil.copy(control.ca_file, directory / "ca.crt")
        programs["check"] = sys.executable
        environment = {**os.environ, "KUBECONFIG": str(directory / "kubeconfig")}

        def line(*words: str | Path) -> str:
            name, *rest = words
            command = [str(programs[str(name)]), *map(str, rest)]
            if name == "check":
                command[1:] = [str(CHECK), *command[1:], control.url, str(directory)]
            done = subprocess.run(
                command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}"
            return done.stdout

        yield line


def definition(run: Run) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run("kubectl", "get", "crd", DEFINITION, "-o", "json"))
    return found


def earlier_chart(directory: Path) -> Path:
    """The chart as an earlier release had it: one field less in a definition."""
    shutil.copytree(CHART, directory / "chart", symlinks=False)
    path = directory / "chart" / "files" / "crds" / f"{DEFINITION}.yaml"
    body = yaml.safe_load(path.read_text())
    for version in body["spec"]["versions"]:
        del version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["restarts"]
    path.write_text(yaml.safe_dump(body))
    return directory / "chart"


def test_the_lines_of_the_page(run: Run) -> None:
    text = (ROOT / "docs" / "operator.md").read_text()
    found = re.findall(r"^(?:helm|kubectl apply --server-side) .*$", text, re.MULTILINE)
    install, ask, apply = found
    assert ask == "helm test waltz --namespace waltz-system"  # needs a pod
    run(*install.split())
    server = HTTPServer(("127.0.0.1", 0), Answers)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    operator = f"http://127.0.0.1:{server.server_port}/healthz"
    try:
        assert "serves both definitions" in run("check", operator)
        run("kubectl", "delete", "crd", "waltzmigrations.waltz.dev")
        with pytest.raises(AssertionError, match="does not serve waltzmigrations"):
            run("check", operator)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    with pytest.raises(AssertionError, match="refused"):
        run("check", operator)
    run("helm", "uninstall", "waltz", "--namespace", "waltz-system")
    run("kubectl", "delete", "-k", "crds", "--ignore-not-found")
    run(*apply.split())
    run(*apply.split())
    assert definition(run)["spec"]["group"] == "waltz.dev"


def test_an_upgrade_brings_the_definitions_and_an_uninstall_keeps_them(run: Run, tmp_path: Path) -> None:
    run("kubectl", "delete", "crd", DEFINITION, "waltzmigrations.waltz.dev", "--ignore-not-found")
    for kind in ("clusterrole", "clusterrolebinding"):
        run("kubectl", "delete", kind, "-l", "app.kubernetes.io/name=waltz-operator")
    where = ["--namespace", "operators", "--create-namespace"]
    run("helm", "install", "second", earlier_chart(tmp_path), *where)

    def fields() -> set[str]:
        schema = definition(run)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
        return set(schema["properties"]["spec"]["properties"])

    assert "restarts" not in fields()
    run("helm", "upgrade", "second", CHART, "--namespace", "operators", "--set", "watchNamespaces={default}")
    assert "restarts" in fields()
    roles = run(
        "kubectl",
        "get",
        "role,clusterrole",
        "-n",
        "default",
        "-l",
        "app.kubernetes.io/name=waltz-operator",
        "-o",
        "name",
    )
    assert sorted(roles.split()) == [
        "clusterrole.rbac.authorization.k8s.io/waltz-edit",
        "clusterrole.rbac.authorization.k8s.io/waltz-view",
        "role.rbac.authorization.k8s.io/waltz-operator",
    ]
    run("helm", "uninstall", "second", "--namespace", "operators")
    assert "restarts" in fields()
