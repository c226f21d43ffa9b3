"""What is reported of a cluster that cannot be asked, and of servers that are not those of the assignment."""

from __future__ import annotations

import asyncio

import pytest

from admin_tests.test_observer import PLAIN, running
from admin_tests.test_processes import ROOT
from waltz_admin import status, verify
from waltz_admin.findings.rules import find
from waltz_admin.observer import ClusterObserver
from waltz_admin.status import ASSIGNMENT_SECONDS, read_status
from waltz_admin.verify import Check
from waltz_cluster.replica_rules import Standing
from waltz_cluster.serializers import PartitionAssignment, ServerDescriptor
from waltz_protocol.aio.tls import TlsSettings
from waltz_protocol.types import Endpoint

TLS = TlsSettings(allow_unverified=True)
"""Of who speaks TLS to processes that do not; a certificate that is refused ends a connection as early."""


@pytest.mark.parametrize("observed", [False, True])
async def test_tools_that_no_process_lets_in_call_nothing_stopped(observed: bool) -> None:
    async with running(reports=True) as world:
        if observed:
            observer = ClusterObserver(world.store, ROOT, tls=TLS, timeout_seconds=2.0, clock=lambda: 0.0)
            found = await observer.observe()
            await observer.close()
        else:
            found = await read_status(world.writer, ROOT, tls=TLS, timeout_seconds=2.0)
        (finding,) = find(found)
        assert finding.rule.name == "not-let-in"
        assert len(finding.evidence) == 4
        assert all("cannot connect" in line for line in finding.evidence)
        assert {r.standing for p in found.partitions for r in p.replicas} == {Standing.UNKNOWN}


async def test_a_check_that_no_process_lets_in_fails_and_calls_nothing_stopped() -> None:
    async with running(reports=True) as world:
        report = await verify.verify_cluster(world.writer, ROOT, timeout_seconds=2.0, tls=TLS)
    assert not report.passed
    (line,) = report.summary
    assert line.startswith("this command is not let in: servers and storage nodes are there")
    assert {r.check for r in report.failures if not r.known} == {Check.QUORUM}


async def test_an_assignment_that_stays_stale_is_found_and_one_that_is_about_to_be_made_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A server that has just registered is in no assignment for a moment."""
    path = f"{ROOT}/serverDescriptors"
    descriptor = ServerDescriptor(2, Endpoint("127.0.0.1", 1)).to_bytes()
    async with running(reports=True) as world:
        await world.writer.create(f"{path}/s_", descriptor, ephemeral=True, sequential=True)
        assert (await world.observer.observe()).left_out is None
        world.now += ASSIGNMENT_SECONDS
        assert (await world.observer.observe()).left_out == (2,)

        monkeypatch.setattr(status, "ASSIGNMENT_SECONDS", 0.0)
        found = await read_status(world.writer, ROOT, tls=PLAIN)
        assert [one.rule.name for one in find(found)] == ["assignment-stale", "server-silent"]
        monkeypatch.setattr(status, "ASSIGNMENT_SECONDS", 600.0)
        async with asyncio.TaskGroup() as tasks:
            asking = tasks.create_task(read_status(world.writer, ROOT, tls=PLAIN))
            data, stat = await world.writer.get(path)
            known = PartitionAssignment.from_bytes(data or b"")
            made = PartitionAssignment(stat.cversion, 2, {**known.servers, 2: ()})
            await world.writer.set(path, made.to_bytes())
        assert asking.result().left_out is None
        assert (await world.observer.observe()).left_out is None
