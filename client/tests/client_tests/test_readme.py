"""The example of the README runs as it stands."""

import re
from pathlib import Path

import pytest

from client_tests.helpers import settings_for
from waltz_client import WaltzClient
from waltz_testkit.fake_cluster import FakeCluster


async def test_the_example_runs(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    readme = Path(__file__).parents[2] / "README.md"
    found = re.search(r"```python\n(.*?)```", readme.read_text(), re.S)
    assert found is not None
    code = found.group(1).replace("asyncio.run(main())", "")
    connect = WaltzClient.connect

    def connect_fake(path: str) -> WaltzClient:
        assert path == "client.yaml"
        return connect(settings_for(cluster), store=cluster.session())

    monkeypatch.setattr(WaltzClient, "connect", connect_fake)
    names: dict[str, object] = {}
    exec(compile(code, str(readme), "exec"), names)
    main = names["main"]
    assert callable(main)
    await main()
    assert capsys.readouterr().out == "0 0 b'opened'\n1 0 b'+10'\n"
