"""The branch of examples/ledger opens each account once, and says of none that it exists which does not."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
import sqlalchemy as sa

from ledger.branch.service import service
from ledger.events import Opened, encode
from waltz_client.opentelemetry import OpenTelemetryObserver
from waltz_client.testing import InProcessLog

BOOK = "EUR"
Post = Callable[[list[str]], tuple[int, dict[str, str]]]


@contextmanager
def branch(log: InProcessLog, database: Path, deadline_seconds: float = 15.0) -> Iterator[Post]:
    """Opens these accounts; the status, and what became of each."""
    engine = sa.create_engine(f"sqlite:///{database}")
    with service({"client.mockDriver": log}, engine, OpenTelemetryObserver(), deadline_seconds) as app:

        def post(names: list[str]) -> tuple[int, dict[str, str]]:
            wishes = [{"account": name, "balance": 1} for name in names]
            answer = app.test_client().post(f"/books/{BOOK}/accounts", json=wishes)
            return answer.status_code, answer.json or {}

        yield post
    engine.dispose()


@pytest.fixture
def post(waltz_log: InProcessLog, tmp_path: Path) -> Iterator[Post]:
    with branch(waltz_log, tmp_path / "branch.db") as post:
        yield post


@pytest.mark.waltz_log(lock_table_size=5)
def test_accounts_of_one_request_whose_locks_share_slots_are_all_opened(
    post: Post, waltz_log: InProcessLog
) -> None:
    names = [f"account {number}" for number in range(20)]
    assert post(names) == (200, dict.fromkeys(names, "done"))
    assert len(waltz_log.partition().transactions) == len(names)
    assert post(names) == (200, dict.fromkeys(names, "the account exists"))


def test_an_account_that_somebody_else_opens_meanwhile_exists(post: Post, waltz_log: InProcessLog) -> None:
    partition = waltz_log.partition()
    assert post(["alice"]) == (200, {"alice": "done"})  # from now on the append is not held up by a mount
    partition.hold()
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(post, ["bob", "carol"])
        while partition.waiting < 2:
            pass
        theirs = Opened(BOOK, "bob", 1)
        header, data = encode(theirs)
        partition.commit(data, header=header, write_locks=theirs.locks().write)
        partition.release()
        assert asked.result() == (200, {"bob": "the account exists", "carol": "done"})


def test_conflicts_without_end_are_an_error_and_no_answer(waltz_log: InProcessLog, tmp_path: Path) -> None:
    waltz_log.partition().conflict_next(10**5)
    with branch(waltz_log, tmp_path / "branch.db", deadline_seconds=0.2) as post:
        status, answer = post(["alice"])
    assert status == 503
    assert "lock conflict in partition 0" in answer["error"]
    assert waltz_log.partition().transactions == []
