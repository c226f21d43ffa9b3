"""The pytest plugin as users have it: found by its entry point, in a pytest of its own."""

import pytest

pytest_plugins = ["pytester"]

WITHOUT = "import sys\ndef test_nothing_of_waltz_is_imported():\n    assert not [m for m in sys.modules if m.partition('.')[0] in {heavy!r}]\n"
INI = "[pytest]\nasyncio_default_fixture_loop_scope = function\n"  # or pytest-asyncio warns
HEAVY = {
    "waltz_client",
    "waltz_protocol",
    "waltz_cluster",
    "waltz_tools",
    "kazoo",
    "sqlalchemy",
    "cryptography",
}

LOG = """
import asyncio
import pytest
from waltz_client.blocking import BlockingWaltzClient
from waltz_client.testing import InProcessLog

def test_a_log_of_its_own(waltz_log):
    async def append():
        async with waltz_log.client() as client:
            return (await client.append(partition=0, data=b"x")).transaction_id
    assert asyncio.run(append()) == 0

def test_another(waltz_log):
    with BlockingWaltzClient.connect({"client.mockDriver": waltz_log}) as client:
        assert (client.num_partitions, client.high_water_mark(0)) == (1, -1)

@pytest.mark.waltz_log(num_partitions=3, first_transaction_id=7)
class TestMarked:
    def test_shape(self, waltz_log: InProcessLog):
        with BlockingWaltzClient.connect({"client.mockDriver": waltz_log}) as client:
            assert client.num_partitions == 3
            assert client.append(partition=2, data=b"x").transaction_id == 7
"""

CLUSTER = """
import pytest
from waltz_client.blocking import BlockingWaltzClient

used = []

@pytest.mark.parametrize("time", [1, 2])
def test_each_has_an_empty_partition(waltz_cluster, time):
    with BlockingWaltzClient.connect(waltz_cluster.client_config) as client:
        assert client.append(partition=waltz_cluster.partition, data=b"x").transaction_id == 0
        assert client.append(partition=waltz_cluster.partition, data=b"x").transaction_id == 1
    used.append(waltz_cluster.partition)
    assert len(set(used)) == time
    assert waltz_cluster.high_water_marks() == {0: 1, 1: 1 if time == 2 else -1}

def test_there_is_none_left(waltz_cluster):
    waltz_cluster.take_partition()
"""


def test_unused_it_imports_nothing_of_waltz(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(WITHOUT.format(heavy=HEAVY))
    pytester.runpytest_subprocess().assert_outcomes(passed=1)


def test_a_log_for_each_test(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(LOG)
    pytester.makeini(INI)
    pytester.runpytest_subprocess("--strict-markers").assert_outcomes(passed=3)


def test_its_fixtures_and_options_are_documented(pytester: pytest.Pytester) -> None:
    result = pytester.runpytest_subprocess("--fixtures")
    result.stdout.fnmatch_lines(["waltz_log *", "waltz_cluster *"])
    result = pytester.runpytest_subprocess("--markers")
    result.stdout.fnmatch_lines(["@pytest.mark.waltz_log(num_partitions=1, *"])


@pytest.mark.long
def test_a_cluster_for_the_run_and_a_partition_for_each_test(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(CLUSTER)
    pytester.makeini(f"{INI}waltz_partitions = 2\n")
    result = pytester.runpytest_subprocess("-W", "error")
    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines(
        ["*used all 2 partitions of the cluster: set waltz_partitions in the configuration of pytest to more"]
    )


def test_a_cluster_that_cannot_be_had_is_one_line(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("import sys\nsys.modules['waltz_tools'] = None\ndef test_it(waltz_cluster): pass")
    result = pytester.runpytest_subprocess()
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(
        ["waltz_cluster runs servers * not installed: install waltz-tools with its extra local *"]
    )


def test_a_shape_that_is_no_number_is_refused(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_it(waltz_cluster): pass")
    pytester.makeini("[pytest]\nwaltz_servers = none\n")
    result = pytester.runpytest_subprocess()
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*waltz_servers is a number from 1 on, not 'none'*"])
