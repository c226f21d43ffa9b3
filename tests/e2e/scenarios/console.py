"""The console of the cluster: added, logged in to, asked, and taken away, while the log is written to."""

from __future__ import annotations

import base64
import json
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.cookiejar import CookieJar
from pathlib import Path
from typing import Any

from tests.e2e.images import TAG
from tests.e2e.kubectl import wait_until
from tests.e2e.shell import ROOT
from tests.e2e.world import CLUSTER, NAMESPACE, SERVERS, STORAGE, WAIT_SECONDS, World

PORT = 18090
IMAGE = f"waltz-tools:{TAG}"
_ASK = """\
import ssl, urllib.error, urllib.request
context = ssl._create_unverified_context()
try:
    urllib.request.urlopen("{url}", timeout=20, context=context)
    print("answered")
except urllib.error.HTTPError as error:
    print("status", error.code)
"""


def add(world: World) -> None:
    """Its pages answer with the cluster's numbers to who has the token, and it appends nothing; a pod of
    another namespace without the token is refused. Storage nodes are restarted for it, servers are not."""
    storage, servers = world.pods(STORAGE), world.pods(SERVERS)
    world.change(console={"enabled": True}, images={"console": IMAGE})
    world.wait_replaced(STORAGE, storage, WAIT_SECONDS)
    wait_until("the console listens", lambda: _status(world).get("ready"), WAIT_SECONDS)
    world.settle()
    if world.pods(SERVERS) != servers:
        raise AssertionError("servers were restarted for the console")
    with _forwarded(world) as link:
        _visit(world, link)
    _ask_without_the_token(world)
    world.change(console={"enabled": False})
    wait_until("the console is gone", lambda: not _left(world), WAIT_SECONDS)
    world.settle()


def _status(world: World) -> dict[str, Any]:
    found: dict[str, Any] = world.cluster()["status"].get("console") or {}
    return found


def _left(world: World) -> list[str]:
    kinds = ("deployments", "services", "networkpolicies", "configmaps", "pods")
    names = [one["metadata"]["name"] for kind in kinds for one in world.kubectl.list(kind)]
    return [name for name in names if name.startswith(f"{CLUSTER}-console")]


@contextmanager
def _forwarded(world: World) -> Iterator[str]:
    """`waltz k8s console`, and the link that it prints."""
    program = str(Path(sys.executable).parent / "waltz")
    options = ["--namespace", NAMESPACE, "--kubeconfig", str(world.kubectl.kubeconfig), "--port", str(PORT)]
    process = subprocess.Popen(
        [program, "k8s", "console", CLUSTER, *options], stdout=subprocess.PIPE, text=True, cwd=ROOT
    )
    try:
        line = "" if process.stdout is None else process.stdout.readline()
        if "#token=" not in line:
            raise AssertionError(f"waltz k8s console: {line}")
        yield line.strip().partition(" ")[2]
    finally:
        process.terminate()
        process.wait()


def _visit(world: World, link: str) -> None:
    address, _, token = link.partition("#token=")
    secret = world.kubectl.get("secret", f"{CLUSTER}-tls-console")
    trusted = ssl.create_default_context(cadata=_decoded(secret, "ca.crt"))
    opener = urllib.request.build_opener(
        urllib.request.HTTPSHandler(context=trusted), urllib.request.HTTPCookieProcessor(CookieJar())
    )
    headers = {"Origin": address.rstrip("/"), "Content-Type": "application/json"}

    def ask(path: str, body: object = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        asked = urllib.request.Request(f"{address}api/{path}", data, headers)
        with opener.open(asked, timeout=30) as answer:
            return json.load(answer)

    wait_until("the console takes the token", lambda: _logged_in(ask, token), 60.0)
    wanted = world.cluster()["spec"]["partitions"]
    overview = wait_until("all partitions are well", lambda: _well(ask("overview"), wanted), 60.0)
    nodes = ask("nodes")
    silent = [one["node"] for one in nodes["nodes"] if one["error"]]
    if len(nodes["nodes"]) != 3 or silent:
        raise AssertionError(f"its page of nodes: {len(nodes['nodes'])}, without an answer: {silent}")
    for path, body in (("append", {"partition": 0, "data": "x"}), ("records?partition=0", None)):
        try:
            ask(path, body)
        except urllib.error.HTTPError as refused:
            if refused.code != 403:
                raise AssertionError(f"{path}: status {refused.code}") from None
        else:
            raise AssertionError(f"{path} is not refused")
    world.notes.append(f"{overview['transactions']} transactions on the page, append and data refused")


def _logged_in(ask: Any, token: str) -> bool:
    try:
        return bool(ask("login", {"token": token})["ok"])
    except urllib.error.HTTPError as refused:
        raise AssertionError(f"the login: status {refused.code}: {refused.read()!r}") from None
    except (urllib.error.URLError, ConnectionError):
        return False  # kubectl does not forward yet


def _well(overview: dict[str, Any], wanted: int) -> dict[str, Any] | None:
    found = overview["partitions"]
    return overview if (found["all"], found["closed"], found["reduced"]) == (wanted, 0, 0) else None


def _decoded(secret: dict[str, Any], key: str) -> str:
    return base64.b64decode(secret["data"][key]).decode()


def _ask_without_the_token(world: World) -> None:
    url = f"https://{CLUSTER}-console.{NAMESPACE}.svc:8090/api/overview"
    elsewhere = world.kubectl.in_namespace("default")
    command = ["--command", "--", "/opt/waltz/bin/python", "-c", _ASK.format(url=url)]
    # Not attached to it: what a pod says before anybody has attached is lost that way.
    elsewhere("run", "stranger", "--image", IMAGE, "--restart=Never", *command)
    try:
        ended = "--for=jsonpath={.status.phase}=Succeeded"
        elsewhere("wait", "pod/stranger", ended, "--timeout=150s", timeout_seconds=180.0)
        said = elsewhere("logs", "stranger")
    finally:
        elsewhere("delete", "pod", "stranger", "--wait=false")
    if "status 401" not in said:
        raise AssertionError(f"a pod without the token: {said}")
