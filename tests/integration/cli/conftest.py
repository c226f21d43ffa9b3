"""One cluster for each module here."""

from collections.abc import Iterator

import pytest

from tests.integration.cli.live import Live, live_cluster


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """Four partitions, three storage nodes in a group each, two servers, TLS."""
    with live_cluster(tmp_path_factory.mktemp("live") / "cluster", "--partitions", "4") as cluster:
        yield cluster
