"""The option that every program has."""

import pytest

from waltz_protocol import __version__
from waltz_runtime.command import CommandParser, version_line


def test_every_program_prints_its_name_and_the_version_of_the_release(
    capsys: pytest.CaptureFixture[str],
) -> None:
    parser = CommandParser(prog="python -m waltz_server", usage="…")
    parser.add_version("waltz-server")
    parser.add_argument("config")
    with pytest.raises(SystemExit) as ended:
        parser.parse_args(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"{version_line('waltz-server')}\n"
    assert version_line("waltz-server") == f"waltz-server {__version__}"
