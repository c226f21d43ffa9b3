"""A check of all partitions asks a node for many copies at the same time: what it takes does not grow with
partitions times the way to the node."""

from __future__ import annotations

import asyncio

import pytest

from admin_tests.at_once import AtOnce
from admin_tests.test_observer import NEW, PLAIN, running
from admin_tests.test_processes import ROOT
from waltz_admin import verify
from waltz_admin.safety import ask_copy
from waltz_admin.view import read_view
from waltz_cluster.replica_rules import NoAnswer, ReplicaAnswer
from waltz_protocol.aio.storage_connection import StorageAdminConnection


async def test_a_node_is_asked_for_many_copies_at_the_same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = AtOnce()

    async def counted(connection: StorageAdminConnection, number: int, available: bool) -> ReplicaAnswer:
        with asked.one():
            return await ask_copy(connection, number, available)

    async with running(reports=NEW) as world:
        view = await read_view(world.writer, ROOT)
        one_by_one = await verify.gather(view, PLAIN, 2.0, (0,)), await verify.gather(view, PLAIN, 2.0, (1,))
        monkeypatch.setattr(verify, "ask_copy", counted)
        answers = await verify.gather(view, PLAIN, 2.0, (0, 1))
    assert asked.most == 2 * len(view.nodes.partitions)
    for node in view.nodes.partitions:
        for number in (0, 1):
            assert answers.nodes[node].copy(number) == one_by_one[number].nodes[node].copy(number)


async def test_a_copy_that_is_not_answered_for_hides_none_that_was_asked_with_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def silent(connection: StorageAdminConnection, number: int, available: bool) -> ReplicaAnswer:
        if number == 0:
            await asyncio.Event().wait()
        return await ask_copy(connection, number, available)

    monkeypatch.setattr(verify, "ask_copy", silent)
    async with running(reports=NEW) as world:
        view = await read_view(world.writer, ROOT)
        answers = await verify.gather(view, PLAIN, 0.3, (0, 1))
    for answer in answers.nodes.values():
        assert [type(answer.copy(number)) for number in (0, 1)] == [NoAnswer, ReplicaAnswer]
        assert answer.problem == "no answer within 0.3 s"
