"""manifests/compose: the file agrees with the images, with its configuration files and with its page; and
where docker is, its cluster runs by the commands of the page.

`docker compose` runs it where that is installed. Elsewhere the same services are started by `docker run`,
with what the file says of each.
"""

import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from release import wheels
from release.tree import shipped

from tests.integration.cli.blocks import blocks
from tests.integration.cli.live import run_command
from tests.integration.two_offices import two_offices
from tests.packages.environments import Environment, interpreters
from tests.repo.files import ROOT
from waltz_tools.__main__ import run

FOLDER = ROOT / "manifests" / "compose"
COMPOSE: dict[str, Any] = yaml.safe_load((FOLDER / "compose.yaml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
TAG = "compose"
SECONDS = 900.0
CONFIG = str(FOLDER / "client.yaml")


def _shell(command: list[str], seconds: float = SECONDS) -> str:
    done = subprocess.run(
        command, cwd=ROOT, env=os.environ | {"WALTZ_TAG": TAG},
        check=False, capture_output=True, text=True, timeout=seconds,
    )  # fmt: skip
    assert done.returncode == 0, (command, done.stdout, done.stderr)
    return done.stdout


def _has(*command: str) -> bool:
    if shutil.which(command[0]) is None:
        return False
    return subprocess.run(command, check=False, capture_output=True, timeout=SECONDS).returncode == 0


def _mounts(service: str) -> list[tuple[str, str]]:
    return [tuple(each.split(":")[:2]) for each in SERVICES[service].get("volumes", [])]


# -- the file ------------------------------------------------------------------------------------------------


def test_the_services_are_those_of_the_page() -> None:
    assert set(SERVICES) == {"zookeeper", *(f"storage-{n}" for n in (1, 2, 3)), "server-1", "server-2"}
    named = {source for service in SERVICES for source, _ in _mounts(service) if not source.startswith("./")}
    assert named == set(COMPOSE["volumes"])


@pytest.mark.parametrize("service", SERVICES)
def test_every_service_is_built_from_a_dockerfile_that_takes_its_arguments(service: str) -> None:
    build = SERVICES[service]["build"]
    assert (FOLDER / build["context"]).resolve() == ROOT
    dockerfile = (ROOT / build["dockerfile"]).read_text()
    default = dict(re.findall(r"^ARG (\w+)=(\S+)$", dockerfile, re.MULTILINE))
    for argument, value in build["args"].items():
        assert re.fullmatch(r"\$\{\w+:-(.+)\}", value)[1] == default[argument]  # type: ignore[index]
    user = re.search(r"^USER (\S+)$", dockerfile, re.MULTILINE)
    assert user is not None
    assert user[1] == "65532:65532"
    assert f'CMD ["{_mounts(service)[-1][1]}"]' in dockerfile, "the mounted file is the one that it reads"


@pytest.mark.parametrize(
    "file", sorted(path.name for path in FOLDER.glob("*.yaml") if path.name != "compose.yaml")
)
def test_its_configuration_files_are_valid(file: str) -> None:
    assert run(["config", "check", "--keys-only", str(FOLDER / file)]) == 0
    role = "storage" if file.startswith("storage") else "server"
    if file != "client.yaml":
        sources = [source for source, _ in _mounts(file.removesuffix(".yaml"))]
        assert f"./{file}" in sources
        assert yaml.safe_load((FOLDER / file).read_text())[f"{role}.bind.host"] == "127.0.0.1"


def test_ports_differ_and_are_those_of_the_page() -> None:
    keys = [yaml.safe_load(path.read_text()) for path in FOLDER.glob("s*-?.yaml")]
    ports = [value for each in keys for key, value in each.items() if key.endswith(".port")]
    page = (FOLDER / "README.md").read_text()
    table = {
        int(number) for line in page.splitlines() if line[:1] == "|" for number in re.findall(r"\d{4}", line)
    }
    assert len(set(ports)) == len(ports) == 13
    assert table == {*ports, 2181}


@pytest.mark.parametrize(
    ("host", "number"),
    [("ledger-zookeeper-2", "3"), ("node-08", "9"), ("node-00", "1"), ("m1", "1"), ("a-8.example.com", "1")],
)
def test_zookeeper_starts_whatever_the_machine_is_called(tmp_path: Path, host: str, number: str) -> None:
    """On the network of the machine the name of the container is that of the machine."""
    program = tmp_path / "bin" / "java"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\nexit 0\n")
    program.chmod(0o755)
    (tmp_path / "zoo.cfg").write_text(f"dataDir={tmp_path}\n")
    environment = {"PATH": f"{program.parent}:{os.environ['PATH']}", "HOSTNAME": host}
    done = subprocess.run(
        ["sh", str(ROOT / "manifests" / "zookeeper" / "start.sh"), str(tmp_path / "zoo.cfg")],
        env=environment, check=False, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "myid").read_text() == f"{number}\n"


# -- the cluster ---------------------------------------------------------------------------------------------


class Containers:
    """`up` and `down` of the page, by docker compose or by docker alone."""

    def __init__(self) -> None:
        tools = [["docker", "compose"], ["docker-compose"]]
        self._compose = next((tool for tool in tools if _has(*tool, "version")), None)

    def up(self, *services: str) -> None:
        if self._compose is not None:
            _shell([*self._compose, "-f", str(FOLDER / "compose.yaml"), "up", "-d", *services])
            return
        running = _shell(["docker", "ps", "--format", "{{.Names}}"]).split()
        for service in services or SERVICES:
            if _name(service) not in running:
                _shell(_docker_run(service))

    def down(self) -> None:
        if self._compose is not None:
            _shell([*self._compose, "-f", str(FOLDER / "compose.yaml"), "down", "--volumes"])
            return
        names = [_name(service) for service in SERVICES]
        subprocess.run(
            ["docker", "stop", "-t", "75", *names], check=False, capture_output=True, timeout=SECONDS
        )
        subprocess.run(["docker", "rm", *names], check=False, capture_output=True, timeout=SECONDS)
        volumes = [_name(volume) for volume in COMPOSE["volumes"]]
        subprocess.run(
            ["docker", "volume", "rm", *volumes], check=False, capture_output=True, timeout=SECONDS
        )


def _name(service: str) -> str:
    return f"waltz-compose-test-{service}"


def _docker_run(service: str) -> list[str]:
    """What docker compose makes of a service. Every key of the file has a meaning here, or is refused."""
    command = ["docker", "run", "-d", "--name", _name(service)]
    for key, value in SERVICES[service].items():
        match key:
            case "network_mode":
                command += ["--network", value]
            case "restart":
                command += ["--restart", value]
            case "read_only":
                command += ["--read-only"]
            case "tmpfs" | "cap_drop" | "security_opt":
                option = f"--{key.replace('_', '-')}"
                command += [word for each in value for word in (option, each)]
            case "stop_grace_period":
                command += ["--stop-timeout", value.removesuffix("s")]
            case "volumes":
                for each in value:
                    source, target, *mode = each.split(":")
                    source = str(FOLDER / source) if source.startswith("./") else _name(source)
                    command += ["-v", ":".join((source, target, *mode))]
            case "image" | "build":
                continue
            case _:
                raise AssertionError(f"{service}: {key} has no meaning here yet")
    return [*command, SERVICES[service]["image"].replace("${WALTZ_TAG:-latest}", TAG)]


def _base_images() -> Iterator[str]:
    for service in SERVICES.values():
        for value in service["build"]["args"].values():
            match = re.fullmatch(r"\$\{(\w+):-(.+)\}", value)
            assert match is not None
            yield os.environ.get(match[1], match[2])


@pytest.fixture(scope="module")
def containers() -> Iterator[Containers]:
    if not _has("docker", "info"):
        pytest.skip("docker does not run here")
    for image in sorted(set(_base_images())):
        if not (_has("docker", "image", "inspect", image) or _has("docker", "pull", "--quiet", image)):
            pytest.skip(f"the base image {image} is not here (PYTHON_BASE_IMAGE, JAVA_BASE_IMAGE)")
    _shell(["make", "image-storage", "image-server", "image-zookeeper", f"TAG={TAG}"])
    made = Containers()
    try:
        yield made
    finally:
        made.down()


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_the_commands_of_the_page(containers: Containers, tmp_path: Path) -> None:
    seen = {}
    for block in blocks(FOLDER / "README.md", ROOT):
        for command in block.commands:
            words = command.split()
            if words[0] == "docker":
                if words[4] == "down":
                    _application(tmp_path)
                _compose(containers, words)
            elif words[0] == "waltz":
                seen[command] = _until(words[1:]) if "sync-partitions" in words else _waltz(words[1:])
            else:
                assert command == "export WALTZ_CONFIG=manifests/compose/client.yaml"
    assert "hello" in seen["waltz tail -p 0 --from 0"]


def _application(place: Path) -> None:
    """That of the first page, from wheels, on the cluster of the containers."""
    wheels.build(shipped(), place / "dist")
    (own, *_) = interpreters()
    environment = Environment.make(place / "env", own.values[0])
    environment.install(place / "dist", "waltz[client,sql]")
    two_offices(place, Path(CONFIG), environment.program("python"), environment.variables())


def _compose(containers: Containers, words: list[str]) -> None:
    assert words[:4] == ["docker", "compose", "-f", "manifests/compose/compose.yaml"]
    if words[4] == "down":
        containers.down()
        return
    assert words[4:7] == ["up", "-d", "--build"]
    containers.up(*words[7:])


def _waltz(arguments: list[str]) -> str:
    done = run_command(CONFIG, *arguments)
    assert done.code == 0, (arguments, done)
    return done.out


def _until(arguments: list[str]) -> str:
    """Again while a storage node is still starting, as the page says."""
    deadline = time.monotonic() + 120
    while (done := run_command(CONFIG, *arguments)).code != 0:
        assert time.monotonic() < deadline, done
        time.sleep(1)
    return done.out
