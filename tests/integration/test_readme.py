"""Every Python block of the README files runs exactly as it is, in a directory that holds `client.yaml`,
on a real cluster."""

import re
import shutil
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.integration.processes import run_program
from waltz_tools.local import LocalCluster, LocalSettings

pytestmark = [pytest.mark.timeout(300), pytest.mark.asyncio(loop_scope="module")]

ROOT = Path(__file__).parents[2]
MAX_LINES_OF_THE_FIRST = 15


def _blocks() -> list[tuple[str, str]]:
    """(name, code) of every block marked python in README.md, and in the one of the client."""
    found = []
    for file in (ROOT / "README.md", ROOT / "client" / "README.md"):
        name = str(file.relative_to(ROOT))
        blocks = re.findall(r"^```python\n(.*?)^```", file.read_text(), re.DOTALL | re.MULTILINE)
        found += [(f"{name}[{number}]", block) for number, block in enumerate(blocks)]
    return found


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[LocalCluster]:
    """As `waltz local up` makes it: TLS on."""
    settings = LocalSettings(tmp_path_factory.mktemp("cluster"), servers=1)
    async with LocalCluster(settings) as cluster:
        yield cluster


@pytest.mark.parametrize(("name", "code"), _blocks(), ids=[name for name, _ in _blocks()])
async def test_block_runs_as_it_stands(name: str, code: str, cluster: LocalCluster, tmp_path: Path) -> None:
    shutil.copy(cluster.client_config, tmp_path / "client.yaml")
    script = tmp_path / "example.py"
    script.write_text(code)
    ended = await run_program(sys.executable, "-W", "error", str(script), directory=tmp_path)
    assert (ended.code, ended.err) == (0, ""), ended.err
    assert ended.out.strip(), f"{name} prints nothing"
    assert "b'" in ended.out, f"{name} shows no payload that was read"


async def test_the_readme_has_an_example_and_it_is_short() -> None:
    names = [name for name, _ in _blocks()]
    assert "README.md[0]" in names
    code = dict(_blocks())["README.md[0]"]
    assert "append(" in code
    assert "feed(" in code
    lines = [line for line in code.splitlines() if line.strip() and not line.startswith(("import ", "from "))]
    assert len(lines) <= MAX_LINES_OF_THE_FIRST
