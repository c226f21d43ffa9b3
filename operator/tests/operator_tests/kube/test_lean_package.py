"""The image of the operator lacks the generated classes of the kubernetes package: nothing of ours asks for
them. What its Dockerfile deletes is deleted from a copy, and the operator and the tests of its client run
with that."""

from __future__ import annotations

import os
import pkgutil
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import kubernetes
import pytest

import waltz_operator

ROOT = Path(__file__).resolve().parents[4]
DOCKERFILE = ROOT / "operator/Dockerfile"
COMMAND = re.compile(r"/site-packages/kubernetes \\\n +&& (find .*)")
KUBECONFIG = """\
apiVersion: v1
kind: Config
current-context: here
contexts: [{name: here, context: {cluster: here, user: me}}]
clusters: [{name: here, cluster: {server: 'http://127.0.0.1:1'}}]
users: [{name: me, user: {token: abc}}]
"""
PROGRAM = """\
import asyncio, importlib, sys
import kopf, kubernetes
assert kubernetes.__file__.startswith(sys.argv[1]), kubernetes.__file__
for name in sys.argv[3:]:
    importlib.import_module(name)
from waltz_operator.kube import config
assert asyncio.run(config.load(sys.argv[2])).host == "http://127.0.0.1:1"
print(len([name for name in sys.modules if name.startswith("kubernetes.") and "models." in name]))
"""


@pytest.fixture(scope="module")
def lean(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    """The environment of a process that finds the lean package first."""
    folder = tmp_path_factory.mktemp("lean")
    found = COMMAND.findall(DOCKERFILE.read_text())
    assert len(found) == 1
    source = Path(str(kubernetes.__file__)).parent
    shutil.copytree(
        source,
        folder / "kubernetes",
        copy_function=os.symlink,
        ignore=shutil.ignore_patterns("__pycache__"),
    )
    before = _files(folder)
    subprocess.run(["bash", "-c", found[0]], cwd=folder / "kubernetes", check=True)
    assert before > 1900 > 200 > _files(folder), "the command deletes the generated classes and nothing else"
    return {**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}


def _files(folder: Path) -> int:
    return sum(len(files) for _, _, files in os.walk(folder))


def test_the_operator_is_imported_and_configured_without_them(
    lean: Mapping[str, str], tmp_path: Path
) -> None:
    kubeconfig = tmp_path / "config"
    kubeconfig.write_text(KUBECONFIG)
    modules = [
        one.name
        for one in pkgutil.walk_packages(waltz_operator.__path__, "waltz_operator.")
        if not one.name.endswith("__main__")
    ]
    assert len(modules) > 80
    command = [sys.executable, "-c", PROGRAM, lean["PYTHONPATH"], str(kubeconfig), *modules]
    ended = subprocess.run(command, env=lean, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.strip() == "0", "a generated class is loaded"


def test_the_client_works_without_them(lean: Mapping[str, str]) -> None:
    tests = [str(Path(__file__).parent / name) for name in ("test_client.py", "test_errors.py")]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests]
    ended = subprocess.run(command, env=lean, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout[-3000:]
    assert " passed" in ended.stdout
