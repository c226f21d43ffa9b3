"""What the process is called and where it lives."""

from __future__ import annotations

from pathlib import Path

import pytest

from waltz_operator import settings
from waltz_operator.__main__ import parser
from waltz_operator.settings import own_identity, own_namespace


def test_a_restart_in_the_same_pod_is_another_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process id of a container is the same each time; the Lease of the process before must not pass for
    one's own."""
    monkeypatch.setenv("POD_NAME", "waltz-operator-abc")
    first, second = own_identity(), own_identity()
    assert first.startswith("waltz-operator-abc_")
    assert first != second


def test_its_namespace_is_told_by_the_pod_else_by_the_service_account_else_the_usual_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "namespace"
    monkeypatch.setattr(settings, "SERVICE_ACCOUNT_NAMESPACE", str(file))
    monkeypatch.delenv("POD_NAMESPACE", raising=False)
    assert own_namespace() == settings.DEFAULT_NAMESPACE
    file.write_text("\n")
    assert own_namespace() == settings.DEFAULT_NAMESPACE
    file.write_text("infra\n")
    assert own_namespace() == "infra"
    monkeypatch.setenv("POD_NAMESPACE", "told")
    assert own_namespace() == "told"


@pytest.mark.parametrize("value", ["0", "-1", "nan", "inf", "soon"])
def test_a_resync_that_would_never_rest_is_refused_in_one_line(
    value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        parser().parse_args(["run", f"--resync-seconds={value}"])
    assert caught.value.code == 2
    said = capsys.readouterr().err
    assert "--resync-seconds" in said
    assert said.count("\n") == 1
