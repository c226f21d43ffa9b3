"""How a program that cannot start ends: one line, JSON where the log is JSON, and an exit code that means the
same in every program ("Exit codes" of docs/operations.md). No cluster is needed."""

import json
import sys
from pathlib import Path

import pytest
import yaml

from tests.integration.processes import SERVER, STORAGE, WALTZ, run_program
from waltz_runtime.exit_code import ExitCode
from waltz_testkit.ports import free_ports
from waltz_tools.local import configs

OPERATOR = (sys.executable, "-m", "waltz_operator")
SERVICES = {"server": SERVER, "storage": STORAGE}
ROOT = Path(__file__).parents[2]


def config(tmp_path: Path, role: str, **more: object) -> str:
    """The file of a role in `tmp_path`; ZooKeeper is not where it says."""
    ports = free_ports(5)
    common = {**configs.common_keys(ports[0], 3000), "zookeeper.connectTimeout": 300}
    (tmp_path / "data").mkdir(exist_ok=True)
    keys = {
        "server": configs.server_keys(common, {"server": ports[1], "http": ports[2]}, True),
        "storage": configs.storage_keys(
            common, {"storage": ports[1], "admin": ports[2], "http": ports[3]}, tmp_path / "data", True
        ),
        "client": configs.client_keys(common, True),
    }[role]
    path = tmp_path / f"{role}.yaml"
    path.write_text(yaml.safe_dump({**keys, **more}))
    return str(path)


@pytest.mark.parametrize("role", SERVICES)
@pytest.mark.parametrize(
    ("mistake", "expected"),
    [
        ({}, "did not answer"),
        ({"ROLE.prot": 1}, "unknown key"),
        ({"ROLE.port": "many"}, "port"),
        ({"ROLE.log.level": "LOUD"}, "'LOUD'"),
    ],
    ids=["ZooKeeper absent", "unknown key", "wrong value", "log level"],
)
async def test_the_line_that_ends_a_start_is_json_where_the_log_is(
    role: str, mistake: dict[str, object], expected: str, tmp_path: Path
) -> None:
    keys = {key.replace("ROLE", role): value for key, value in mistake.items()}
    ended = await run_program(*SERVICES[role], config(tmp_path, role, **keys))
    assert expected in ended.one_error(ExitCode.FAILED)
    for said in (True, "yes"):
        ended = await run_program(
            *SERVICES[role], config(tmp_path, role, **{f"{role}.log.json": said}, **keys)
        )
        lines = [json.loads(line) for line in ended.err.splitlines()]
        assert (ended.code, lines[-1]["level"]) == (ExitCode.FAILED, "critical")
        assert expected in lines[-1]["event"]
        assert {"logger", "timestamp"} <= lines[-1].keys()


@pytest.mark.parametrize("role", SERVICES)
async def test_a_quiet_log_still_has_the_line_that_ends_a_start(role: str, tmp_path: Path) -> None:
    keys: dict[str, object] = {f"{role}.log.level": "CRITICAL", f"{role}.log.json": True}
    ended = await run_program(*SERVICES[role], config(tmp_path, role, **keys))
    assert "did not answer" in json.loads(ended.err.splitlines()[-1])["event"]


@pytest.mark.parametrize(
    ("program", "command_line"),
    [
        (SERVER, []),
        (SERVER, ["--nonsense"]),
        (SERVER, ["a.yaml", "b.yaml"]),
        (STORAGE, []),
        (STORAGE, ["--nonsense"]),
        (WALTZ, ["nonsense"]),
        (WALTZ, ["zk", "list"]),
        (OPERATOR, ["nonsense"]),
        (OPERATOR, ["run", "--log-level", "LOUD"]),
    ],
)
async def test_a_wrong_command_line_is_2(program: tuple[str, ...], command_line: list[str]) -> None:
    ended = await run_program(*program, *command_line)
    assert len(ended.one_error(ExitCode.USAGE).splitlines()) == 1


@pytest.mark.parametrize("program", [SERVER, STORAGE, (*WALTZ, "zk", "list", "-c")])
async def test_a_file_that_cannot_be_read_is_1(program: tuple[str, ...]) -> None:
    ended = await run_program(*program, "/no/such.yaml")
    assert "cannot read configuration file /no/such.yaml" in ended.one_error(ExitCode.FAILED)


@pytest.mark.parametrize("program", [SERVER, STORAGE, WALTZ, OPERATOR])
async def test_help_is_0(program: tuple[str, ...]) -> None:
    ended = await run_program(*program, "--help")
    assert (ended.code, ended.err) == (ExitCode.OK, "")
    assert "usage" in ended.out.lower()


@pytest.mark.parametrize(
    ("program", "role", "whose"),
    [
        (SERVER, "storage", "the file of a storage node"),
        (SERVER, "client", "the file of a client"),
        (STORAGE, "server", "the file of a server"),
        (STORAGE, "client", "the file of a client"),
        ((*WALTZ, "zk", "list", "-c"), "server", "the file of a server"),
        ((*WALTZ, "zk", "list", "-c"), "storage", "the file of a storage node"),
    ],
)
async def test_a_file_of_another_role(
    program: tuple[str, ...], role: str, whose: str, tmp_path: Path
) -> None:
    path = config(tmp_path, role)
    ended = await run_program(*program, path)
    assert f"{path} is {whose}" in ended.one_error(ExitCode.FAILED)


def test_the_table_of_exit_codes_is_the_one_of_the_code() -> None:
    text = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    section = text.partition("## Exit codes\n")[2].partition("\n## ")[0]
    codes = [line.split("|")[1].strip() for line in section.splitlines() if line.startswith("| ")][2:]
    assert [int(code) for code in codes] == [int(code) for code in ExitCode]
