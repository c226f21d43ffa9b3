"""Fresh environments, our wheels, no checkout and no network: imports, `--version`, a cluster, an
application.

Run on every Python that is here: that of the tests, and those that `make interpreters` has prepared.
"""

import contextlib
import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from release.tree import shipped, version

from tests.integration.cli.blocks import blocks
from tests.integration.two_offices import two_offices
from tests.packages.environments import SECONDS, Environment, Interpreter, foreign, interpreters
from tests.repo.files import ROOT
from waltz_tools.local.java import find_java

pytestmark = [pytest.mark.timeout(600), pytest.mark.long]

EVERYTHING = "waltz[client,sql,sql-async,asyncpg,prometheus,opentelemetry,pkcs12,checksum,zstd,spark,pyspark,server,storage,tools,local,k8s,operator]"
COMMANDS = {name: member for member in shipped() for name in member.project.get("scripts", {})}

_IMPORT_ALL = """
import importlib, json, pkgutil, sys

for name in sys.argv[1:]:
    package = importlib.import_module(name)
    print(package.__name__, package.__version__)
    for module in pkgutil.walk_packages(package.__path__, name + "."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
"""

_APPLICATION = """
import asyncio, sys

from waltz_client import LockId, WaltzClient


async def main(config):
    async with WaltzClient.connect(config) as client:
        lock = LockId.of("account", "alice")
        first = await client.append(partition=0, data=b"opened", write_locks=[lock], as_of=-1)
        await client.append(partition=0, data=b"+10", write_locks=[lock], as_of=first.transaction_id)
        last = await client.high_water_mark(0)
        async for transaction in client.feed(0, after=-1, until=last):
            print(transaction.transaction_id, transaction.data.decode())


asyncio.run(main(sys.argv[1]))
"""


@pytest.fixture(scope="module", params=interpreters())
def interpreter(request: pytest.FixtureRequest) -> Interpreter:
    chosen: Interpreter = request.param
    return chosen


@pytest.fixture(scope="module")
def everything(interpreter: Interpreter, dist: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    made = Environment.make(tmp_path_factory.mktemp("everything") / "env", interpreter)
    made.install(dist, EVERYTHING)
    return made


@pytest.fixture(scope="module")
def client_only(
    interpreter: Interpreter, dist: Path, tmp_path_factory: pytest.TempPathFactory
) -> Environment:
    """By the line of docs/install.md."""
    made = Environment.make(tmp_path_factory.mktemp("client") / "env", interpreter)
    (lines,) = [block.commands for block in blocks(ROOT / "docs/install.md", ROOT)]
    assert lines[0] == "make wheels"
    (made.home / "dist").symlink_to(dist)
    made.link(foreign(dist, ["waltz[client]"]))
    made.shell(lines[1])
    return made


def test_everything_is_installed_by_one_name_and_can_be_imported(everything: Environment) -> None:
    packages = [package.name for member in shipped() for package in member.packages]
    printed = everything.run("python", "-c", _IMPORT_ALL, *packages)
    assert printed.split() == [word for name in packages for word in (name, version())]
    assert everything.run("python", "-m", "pip", "check") == "No broken requirements found.\n"


def test_every_command_prints_its_version(everything: Environment) -> None:
    assert set(COMMANDS) == {"waltz", "kubectl-waltz", "waltz-server", "waltz-storage", "waltz-operator"}
    assert everything.run("kubectl-waltz", "--version") == f"waltz {version()}\n"
    for command, member in COMMANDS.items():
        if command == "kubectl-waltz":
            continue
        assert everything.run(command, "--version") == f"{command} {version()}\n"
        module = member.packages[0].name
        assert everything.run("python", "-m", module, "--version") == f"{command} {version()}\n"


def test_a_client_brings_nothing_that_only_others_need(client_only: Environment) -> None:
    listed = json.loads(client_only.run("python", "-m", "pip", "list", "--format", "json"))
    names = {one["name"].lower() for one in listed}
    assert {name for name in names if name.startswith("waltz")} == {
        "waltz", "waltz-client", "waltz-cluster", "waltz-protocol",
    }  # fmt: skip
    assert not names & {
        "cryptography",
        "pyspark",
        "pyarrow",
        "numpy",
        "uvloop",
        "aiohttp",
        "kopf",
        "kubernetes",
        "sqlalchemy",
    }
    client_only.run("python", "-c", "import waltz_client, waltz_client.blocking, waltz_client.testing")


def test_an_application_with_the_client_alone_appends_and_reads_on_a_cluster_from_wheels(
    everything: Environment, client_only: Environment, tmp_path: Path
) -> None:
    with _local_cluster(everything, tmp_path / "cluster") as config:
        printed = client_only.run("python", "-c", _APPLICATION, config)
        assert printed.splitlines() == ["0 opened", "1 +10"]
        tailed = everything.run("waltz", "tail", "-c", config, "-p", "0", "--from", "0")
        assert [json.loads(line)["transaction"] for line in tailed.splitlines()] == [0, 1]


def test_the_program_of_the_first_page_runs_from_wheels(everything: Environment, tmp_path: Path) -> None:
    with _local_cluster(everything, tmp_path / "cluster") as config:
        two_offices(tmp_path, Path(config), everything.program("python"), everything.variables())


@contextlib.contextmanager
def _local_cluster(environment: Environment, data: Path) -> Iterator[str]:
    """`waltz local up` from wheels; the path of the client's configuration file."""
    command = [environment.program("waltz"), "local", "up", "--data", str(data), "--output", "json"]
    java = str(Path(find_java()).resolve().parent.parent)
    process = subprocess.Popen(
        command,
        cwd=environment.home,
        env=environment.variables(JAVA_HOME=java),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        if process.stdout is None:
            raise AssertionError("no pipe")
        line = process.stdout.readline()
        assert line, process.communicate()
        yield str(json.loads(line)["config"])
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=SECONDS)
    assert process.returncode == 0
