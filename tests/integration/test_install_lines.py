"""The `pip install` lines of docs/applications.md and docs/spark.md as they are there, in a fresh
environment without a network.

What is not ours is linked into the new environment, so pip finds it installed; none of our packages is there
before the line was run.
"""

import os
import re
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tests.integration.cli.blocks import Block, blocks
from tests.repo.files import ROOT
from waltz_tools.local.java import find_java

pytestmark = [pytest.mark.timeout(300)]

_SECONDS = 240
_OURS = re.compile(r"waltz|pyspark_waltz|pip\b|pip-|__pycache__|.*\.pth$")

_FIND_THE_SOURCE = """
from pyspark.sql import SparkSession

build = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
build = build.config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
spark = build.config("spark.driver.memory", "512m").getOrCreate()
try:
    spark.read.format("waltz").load().collect()
except Exception as error:
    print("answer:", error)
spark.stop()
"""
"""A source that Spark has found asks for the address of the log; one that it has not found is named in
another error."""


@pytest.fixture
def fresh(tmp_path: Path) -> Path:
    """A new environment with pip and everything that is not ours."""
    home = tmp_path / "environment"
    subprocess.run([sys.executable, "-m", "venv", str(home)], check=True, timeout=_SECONDS)
    (there,) = home.glob("lib/python*/site-packages")
    for entry in Path(sysconfig.get_paths()["purelib"]).iterdir():
        if not _OURS.match(entry.name) and not (there / entry.name).exists():
            (there / entry.name).symlink_to(entry)
    return home


def _run(script: str, home: Path, directory: Path, **more: str) -> str:
    """What a shell script prints that finds the programs of the environment first."""
    environment = {
        key: value
        for key, value in os.environ.items()
        if not key.startswith(("PIP_", "PYTHON", "PYSPARK_", "SPARK_")) and key != "VIRTUAL_ENV"
    }
    environment |= {"PATH": f"{home / 'bin'}:{os.environ['PATH']}", "PIP_NO_INDEX": "1", **more}
    # To pip this variable is the value of its setting "build isolation": 0 builds with the hatchling that is
    # there.
    environment |= {"PIP_NO_BUILD_ISOLATION": "0", "PIP_CONFIG_FILE": os.devnull}
    done = subprocess.run(
        ["bash", "-c", f"set -e\n{script}"],
        cwd=directory,
        env=environment,
        check=False,
        capture_output=True,
        text=True,
        timeout=_SECONDS,
    )
    assert done.returncode == 0, done
    return done.stdout


def _where(module: str, home: Path, directory: Path) -> Path:
    printed = _run(f"python -c 'import {module}; print({module}.__file__)'", home, directory)
    return Path(printed.strip())


def _block(page: str) -> Block:
    (found,) = [block for block in blocks(ROOT / page, ROOT) if "pip install" in block.text]
    return found


@pytest.mark.long
def test_the_line_for_applications(fresh: Path, tmp_path: Path) -> None:
    """Afterwards the first program of the page can be read by Python: what it imports is there."""
    for command in _block("docs/applications.md").commands:
        _run(command, fresh, ROOT)
    assert _where("waltz_client.sql", fresh, tmp_path).is_relative_to(fresh)
    program = next(one for one in blocks(ROOT / "docs/applications.md", ROOT) if one.language == "python")
    assert "waltz_client.sql" in program.text
    (tmp_path / "program.py").write_text(program.text)
    _run("python program.py", fresh, tmp_path)


@pytest.mark.long
def test_the_lines_for_spark(fresh: Path, tmp_path: Path) -> None:
    """Afterwards Spark finds `format("waltz")` on its own, with the Python of PYSPARK_PYTHON."""
    commands = _block("docs/spark.md").commands
    assert [one.split()[0] for one in commands] == ["pip", "export"]
    (tmp_path / "program.py").write_text(_FIND_THE_SOURCE)
    java = str(Path(find_java()).resolve().parent.parent)
    script = "\n".join([*commands, f"cd {tmp_path}", "python program.py"])
    printed = _run(script, fresh, ROOT, JAVA_HOME=java)
    assert "answer: " in printed
    answer = printed.partition("answer: ")[2]
    assert "waltz: " in answer, printed
    assert "zookeeper.connectString" in answer
    assert _where("waltz_spark", fresh, tmp_path).is_relative_to(fresh)
