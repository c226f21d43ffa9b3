"""Which SQLAlchemy `waltz_client.sql` accepts."""

import importlib

import pytest
import sqlalchemy

import waltz_client.sql


@pytest.mark.parametrize("version", ["1.4.54", "2.0.0", "2.0.39"])
def test_an_older_sqlalchemy_is_refused_on_import(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In 2.0.35 and before no single connection has the events that keep `apply` from ending the transaction:
    every transaction would count as one that cannot be applied."""
    monkeypatch.setattr(sqlalchemy, "__version__", version)
    with pytest.raises(
        ImportError, match=rf"needs SQLAlchemy 2\.0\.40 or newer, not {version}: install waltz-client with"
    ):
        importlib.reload(waltz_client.sql)


@pytest.mark.parametrize("version", ["2.0.40", "2.1.0b1", "3.0.0"])
def test_that_and_newer_ones_are_accepted(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlalchemy, "__version__", version)
    importlib.reload(waltz_client.sql)
