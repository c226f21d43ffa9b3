"""docs/three-machines.md as it is: its files, its commands, line by line, in its order. The machines are
127.0.0.1, 127.0.0.2 and 127.0.0.3, each with a directory of its own for `/etc`, `/data` and `/var`; the
programs are those that its first block has installed.

The tests of this module build on one another. `ssh` runs the rest of its line for a machine, `scp` copies,
`systemctl` starts and stops what the units would; ports are others of this machine, and `waltz`, the user of
the services, is whoever runs the test. Everything else is run by a shell as it is written.
"""

import contextlib
import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import sysconfig
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.integration.cli.blocks import blocks
from tests.repo.files import ROOT
from waltz_testkit.ports import free_ports
from waltz_testkit.zookeeper import find_jars, find_java

pytestmark = [pytest.mark.staged, pytest.mark.long, pytest.mark.timeout(600)]

SECONDS = 300.0
MACHINES = {"m1": "127.0.0.1", "m2": "127.0.0.2", "m3": "127.0.0.3"}
PORTS = ("2181", "2888", "3888", "7000", "7001", "7002", "8000", "8001")
BLOCKS = blocks(ROOT / "docs" / "three-machines.md", ROOT)
RUN = {block.run: block for block in BLOCKS if block.run is not None}
FILES = {match[1]: block.text for block in BLOCKS if (match := re.search(r"\bfile=(\S+)", block.info))}
_OURS = re.compile(r"waltz|pyspark_waltz|pip\b|pip-|__pycache__|.*\.pth$")
_WAITS_FOR = {"zookeeper": "2181", "waltz-storage": "7001", "waltz-server": "8001"}


@dataclass
class Machines:
    """Three machines and the reader's own, below `directory`."""

    directory: Path
    ports: dict[str, str]
    running: dict[tuple[str, str], "subprocess.Popen[bytes]"] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def programs(self) -> Path:
        return self.directory / "opt" / "waltz" / "bin"

    @property
    def own(self) -> Path:
        return self.directory / "own"

    def here(self, text: str, machine: str = "own") -> str:
        """A text of the document with the addresses, ports and paths of this machine."""
        for name, address in MACHINES.items():
            text = re.sub(rf"\b{name}\b(?!/)", address, text)
        text = re.sub(r"\b(" + "|".join(PORTS) + r")\b", lambda match: self.ports[match[1]], text)
        text = text.replace("/opt/waltz", str(self.directory / "opt" / "waltz"))
        return re.sub(r"(?<![\w./])/(etc|data|var)/", rf"{self.directory}/{machine}/\1/", text)

    def place(self, path: str, content: str, machine: str = "own") -> None:
        """A file of the document."""
        target = Path(self.here(path, machine)) if path.startswith("/") else self.own / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(self.here(content, machine) + "\n")

    def follow(self, name: str) -> list[str]:
        """Run a block line by line; what each printed. Every command has to succeed."""
        return [self._line(line) for line in RUN[name].commands]

    def _line(self, line: str) -> str:
        words = shlex.split(line)
        if words[0] == "export":
            variable, _, value = words[1].partition("=")
            self.environment[variable] = value
            return ""
        if words[0] == "scp":
            machine, _, folder = words[-1].partition(":")
            return self._shell(f"cp -r {' '.join(words[2:-1])} {self.here(folder, machine)}")
        if words[0] != "ssh":
            return self._shell(self.here(line))
        machine, words = words[1], words[2:]
        if words[0] == "systemctl":
            names = [word for word in words[2:] if not word.startswith("-")]
            for name in names:
                self._service(words[1], name, machine)
            return ""
        if words[0] == "chown":
            words = [str(os.getuid()) if word == "waltz" else word for word in words]
        return self._shell(self.here(words[0] if len(words) == 1 else shlex.join(words), machine))

    def _shell(self, command: str) -> str:
        kept = {
            key: value
            for key, value in os.environ.items()
            if not key.startswith(("PIP_", "PYTHON", "WALTZ_")) and key != "VIRTUAL_ENV"
        }
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=self.own,
            env={**kept, **self.environment, "PATH": f"{self.programs}:{os.environ['PATH']}"},
            check=False, capture_output=True, text=True, timeout=SECONDS,
        )  # fmt: skip
        assert done.returncode == 0, (command, done.stdout, done.stderr, self.ends())
        return done.stdout

    # -- services --------------------------------------------------------------------------------------------

    def _service(self, verb: str, name: str, machine: str) -> None:
        if verb in ("stop", "restart"):
            process = self.running.pop((machine, name))
            process.send_signal(signal.SIGTERM)
            assert process.wait(SECONDS) in (0, 143)  # ZooKeeper ends with 143
        if verb in ("start", "enable", "restart"):
            log = self.directory / machine / f"{name}.log"
            with log.open("ab") as output:
                command = self._command(name, machine)
                self.running[machine, name] = subprocess.Popen(command, stdout=output, stderr=output)
            if name != "zookeeper":  # one of an ensemble answers when another one is there
                self._until_open(name, machine, log)

    def _command(self, name: str, machine: str) -> list[str]:
        if name == "zookeeper":
            return [
                find_java(), "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
                "-Dzookeeper.admin.enableServer=false", "-cp", ":".join(find_jars()),
                "org.apache.zookeeper.server.quorum.QuorumPeerMain",
                self.here("/etc/zookeeper/conf/zoo.cfg", machine),
            ]  # fmt: skip
        program, _, instance = name.partition("@")
        unit = (ROOT / "manifests" / "systemd" / f"{program}@.service").read_text()
        found = re.search(r"^ExecStart=(.*)$", unit, re.MULTILINE)
        assert found is not None
        return shlex.split(self.here(found[1].replace("%i", instance), machine))

    def _until_open(self, name: str, machine: str, log: Path) -> None:
        port = int(self.ports[_WAITS_FOR[name.partition("@")[0]]])
        deadline = time.monotonic() + SECONDS
        while True:
            process = self.running[machine, name]
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            with contextlib.suppress(OSError), socket.create_connection((MACHINES[machine], port), 1):
                return
            time.sleep(0.05)

    def ends(self) -> dict[str, str]:
        """The last of every log."""
        return {str(log): log.read_text()[-500:] for log in sorted(self.directory.glob("m?/*.log"))}

    def close(self) -> None:
        for process in self.running.values():
            process.kill()
            process.wait()


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    ports = dict(zip(PORTS, map(str, free_ports(len(PORTS))), strict=True))
    made = Machines(tmp_path_factory.mktemp("machines"), ports)
    made.own.mkdir()
    yield made
    made.close()


def test_every_block_is_run_here() -> None:
    source = Path(__file__).read_text()
    used = set(re.findall(r'(?:follow\(|RUN\[)"([a-z-]+)"', source))
    assert used == RUN.keys()


def test_the_programs_are_installed(machines: Machines) -> None:
    """Without a network: what is not ours is linked into the environment, so pip finds it there."""
    make, install = RUN["install"].commands
    home = machines.directory / "opt" / "waltz"
    machines._shell(machines.here(make).replace("python3", sys.executable, 1))
    (there,) = home.glob("lib/python*/site-packages")
    for entry in Path(sysconfig.get_paths()["purelib"]).iterdir():
        if not _OURS.match(entry.name) and not (there / entry.name).exists():
            (there / entry.name).symlink_to(entry)
    offline = {"PIP_NO_INDEX": "1", "PIP_NO_BUILD_ISOLATION": "0", "PIP_CONFIG_FILE": os.devnull}
    machines.environment = offline
    machines._shell(f"cd {ROOT} && {machines.here(install)}")
    machines.environment = {}


def test_zookeeper(machines: Machines) -> None:
    for machine in MACHINES:
        content = FILES["/etc/zookeeper/conf/zoo.cfg"]
        content = content.replace("clientPortAddress=m1", f"clientPortAddress={machine}")
        machines.place("/etc/zookeeper/conf/zoo.cfg", content, machine)
        Path(machines.here("/var/lib/zookeeper", machine)).mkdir(parents=True)
    machines.follow("zookeeper")


def test_certificates(machines: Machines) -> None:
    machines.follow("certificates")
    keys = list(machines.directory.glob("m?/etc/waltz/*/tls.key"))
    assert [key.stat().st_mode & 0o777 for key in keys] == [0o600] * 5


def test_configuration(machines: Machines) -> None:
    for kind, numbers in (("s", (1, 2, 3)), ("h", (1, 2))):
        for number in numbers:
            content = FILES[f"/etc/waltz/{kind}1.yaml"].replace(f"{kind}1", f"{kind}{number}")
            content = re.sub(r"host: m1$", f"host: m{number}", content, flags=re.MULTILINE)
            machines.place(f"/etc/waltz/{kind}{number}.yaml", content, f"m{number}")
    for name in ("tools.yaml", "orders.yaml", "first.py"):
        machines.place(name, FILES[name])
    machines.follow("check")


def test_the_cluster_starts_and_takes_the_first_client(machines: Machines) -> None:
    machines.follow("start")
    first, tail, status = machines.follow("first-client")
    assert first == "transaction 0\n"
    assert "hello" in tail
    assert "h2" in status or MACHINES["m2"] in status


def test_who_reaches_zookeeper_without_credentials_reads_and_changes_nothing(machines: Machines) -> None:
    lines = machines.here(FILES["tools.yaml"]).splitlines()
    kept = [line for line in lines if not line.startswith(("zookeeper.auth", "zookeeper.acl"))]
    assert len(kept) == len(lines) - 2
    (machines.own / "stranger.yaml").write_text("\n".join(kept))
    for command in ("list", "add-storage-node -s m1:7100 -a 7101 -g 1", "delete -n demo --force --yes"):
        with pytest.raises(AssertionError, match="ZooKeeper does not permit it"):
            machines._shell(f"waltz zk {command} -c stranger.yaml")


def test_the_servers_watch_each_other(machines: Machines) -> None:
    """They have to be among the names that their own port admits."""
    until = time.monotonic() + 30.0
    for machine in ("m1", "m2"):
        page = f"http://{MACHINES[machine]}:{machines.ports['8001']}/metrics"
        watched = -1
        while watched != 1:
            assert time.monotonic() < until, watched
            with urllib.request.urlopen(page, timeout=10) as answer:
                watched = json.load(answer)["gauges"]["waltz-server.peers-watched"]["value"]
            time.sleep(0.2)


def test_a_machine_is_away(machines: Machines) -> None:
    _, away, *_ = machines.follow("machine-away")
    assert away == "transaction 1\n"


def test_one_by_one(machines: Machines) -> None:
    machines.follow("one-by-one")


def test_certificates_are_renewed_without_a_restart(machines: Machines) -> None:
    before = {name: process.pid for name, process in machines.running.items()}
    assert machines.follow("renew")[-1] == "transaction 2\n"
    assert {name: process.pid for name, process in machines.running.items()} == before
    for machine, name in before:
        if name != "zookeeper":
            log = machines.directory / machine / f"{name}.log"
            deadline = time.monotonic() + 60
            while "new certificates are in use" not in log.read_text():
                assert time.monotonic() < deadline, log.read_text()[-2000:]
                time.sleep(0.2)
