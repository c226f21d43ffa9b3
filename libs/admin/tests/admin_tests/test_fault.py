"""A partition whose server reports why it is not open: who asks for that, what is said of it, and the next
step."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

import pytest

from admin_tests.fake_processes import FakeServer
from admin_tests.test_findings import C, R, S, U, partition, replicas, status
from admin_tests.test_observer import NEW, World, running
from admin_tests.test_observer import metadata as listed
from admin_tests.test_processes import SESSION, register
from admin_tests.test_processes import World as Asked
from admin_tests.test_processes import world as asked  # noqa: F401 - a fixture
from admin_tests.test_status import SERVER, held, metadata, page
from admin_tests.test_status import _view as view_of
from waltz_admin.cluster_status import PartitionStatus
from waltz_admin.findings.explain import explain
from waltz_admin.findings.finding import Finding, Severity
from waltz_admin.findings.rules import find
from waltz_admin.kept_reports import ASK_AGAIN_SECONDS
from waltz_admin.not_open import NotOpen
from waltz_admin.observer import LATE_SECONDS
from waltz_admin.reports import NOT_OPEN, REPLICAS, ServerReport
from waltz_admin.status import summarize
from waltz_admin.verify import Answers, Check, ServerAnswer, with_reports
from waltz_cluster.replica_rules import Standing
from waltz_cluster.serializers import PartitionAssignment, ReplicaState, ServerDescriptor
from waltz_protocol.types import Endpoint, Generation, PartitionId

WHY = "a quorum holds records up to 4 only, but the low-water mark of c:1 proves 9 committed"
OLDER = (
    "ZooKeeper's metadata of this partition is older than its replicas: a:1 has completed session 9, later "
    "than the 5 that ZooKeeper gave out"
)
FENCES = "the fences of too many replicas are out of reach: `waltz storage lower-fence` is the way out"
FORK = "its log differs from that of the other replicas (fork)"


def rows(*reported: NotOpen, refused: tuple[tuple[int, str, str], ...] = ()) -> str:
    """The report of a server with these parts."""
    states = [{"partition": r.partition, "state": r.state, "reason": r.reason} for r in reported]
    copies = [{"partition": p, "node": node, "reason": reason} for p, node, reason in refused]
    return json.dumps({"not_open": {"rows": states}, "replicas": {"refused": copies}})


# ---- verify


async def test_verify_gives_the_reason_of_the_server_and_of_an_older_one_what_it_gave_before(
    asked: Asked,  # noqa: F811
) -> None:
    assert await asked.failed() == {}
    assert asked.server.parts == [], "nobody is asked while all is well"
    asked.server.health = {0: False, 1: True}

    async def health() -> str:
        (failure,) = (await asked.report()).failures
        assert (failure.partition_id, failure.check) == (0, Check.HEALTH)
        return failure.reason

    asked.server.report = rows(NotOpen(0, "fault", WHY), NotOpen(1, "fault", "it is healthy"))
    assert await health() == f"server 1 reports fault: {WHY}"
    assert asked.server.parts == [NOT_OPEN], "and not for the part that nothing is a case of"
    asked.server.report = rows(NotOpen(0, "starting", ""))
    assert await health() == "server 1 reports starting"
    for older in (None, "{}", "nonsense", rows(NotOpen(1, "fault", WHY))):
        asked.server.report = older
        assert await health() == "server 1 reports that it is not healthy"


# ---- status, explain, doctor


def closed(reported: NotOpen | None, *copies: Standing, number: int = 0) -> PartitionStatus:
    found = partition(*replicas(*(copies or (C, C, C))), number=number, healthy=False)
    return replace(found, not_open=reported)


def fault(reason: str, *copies: Standing, number: int = 0) -> PartitionStatus:
    return closed(NotOpen(number, "fault", reason), *copies, number=number)


def first(*partitions: PartitionStatus) -> Finding:
    return find(status(*partitions))[0]


def test_status_and_explain_give_the_reason_of_a_fault_and_wait_for_nothing() -> None:
    seen = page(metadata(), {}, healthy=False, not_open=NotOpen(0, "fault", WHY))
    (one,) = seen.partitions
    assert one.problem == f"its server {SERVER} reports fault: {WHY}"
    assert (one.waits_for, one.fault) == ("", WHY)
    (found,) = find(seen)
    assert (found.rule.name, found.rule.severity) == ("fault", Severity.STOPPED)
    assert found.finding == f"no partition can take a write: its server {SERVER} reports fault: {WHY}"
    assert "/health" not in found.next_step
    explained = explain(seen, 0, [found])
    assert explained.verdict == f"partition 0 takes no writes: its server {SERVER} reports fault: {WHY}"
    assert explained.findings == (found,)


def test_a_fault_comes_before_replicas_that_are_away() -> None:
    """Whoever brings them back has not opened it."""
    seen = page(
        metadata(),
        {"b": "no answer", "c": "no answer"},
        healthy=False,
        not_open=NotOpen(0, "fault", WHY),
    )
    assert seen.partitions[0].problem.endswith(f"reports fault: {WHY}")
    assert find(seen)[0].rule.name == "fault"
    assert first(fault(WHY, C, S, U)).rule.name == "fault"
    waiting = replace(NotOpen(0, "fault", WHY), state="no_quorum")
    seen = page(metadata(), {"b": "no answer", "c": "no answer"}, healthy=False, not_open=waiting)
    assert seen.partitions[0].problem.startswith("1 of 3 replicas, 2 needed")
    assert find(seen)[0].rule.name == "no-quorum"


def test_metadata_that_zookeeper_has_lost_are_a_fault_and_no_partition_that_never_was_started() -> None:
    """Whoever reads "start a server; the first session is opened then" believes that nothing was lost."""
    missing = "its metadata are missing in ZooKeeper, and were deleted or lost there"
    for known, why in ((None, missing), ("broken", "its metadata cannot be read: broken")):
        (found,) = find(page(known, {}))  # its server has it open
        assert (found.rule.name, found.partitions) == ("fault", (0,))
        assert found.finding == f"partition 0: {why}; it takes writes until its store session ends"
        assert found.next_step.startswith("do not restart its server before: no store session opens without")
        assert "restore ZooKeeper's data from a copy" in found.next_step
        first, second = find(page(known, {}, registered=False))
        assert first.rule.name == "no-server"
        assert second.finding == f"no partition can take a write: {why}"
        assert (second.rule.name, "empty, reset and remove nothing" in second.next_step) == ("fault", True)
        reported = NotOpen(0, "fault", "partition metadata is missing")
        (found,) = find(page(known, {}, healthy=False, not_open=reported))
        assert found.finding.endswith("reports fault: partition metadata is missing")
        (one,) = page(known, {"b": None}).partitions
        assert [r.standing for r in one.replicas] == [
            Standing.UNKNOWN, Standing.UNASSIGNED, Standing.UNKNOWN
        ]  # fmt: skip
        assert one.problem.startswith(why)
        explained = explain(page(known, {}), 0, [])
        assert explained.verdict.startswith(f"partition 0 takes writes: server {SERVER} serves it, 0 of 3")


def test_a_partition_that_never_was_started_has_lost_nothing() -> None:
    view = replace(view_of(None, registered=True), never_started=frozenset({PartitionId(0)}))
    (one,) = summarize(view, Answers({}, {}), {}).partitions
    assert one.metadata_lost == ""


def test_of_a_server_without_the_report_the_text_is_that_of_before() -> None:
    (one,) = page(metadata(), {}, healthy=False).partitions
    assert one.problem == f"its server {SERVER} reports that it is not healthy"
    assert one.waits_for == "the recovery of its store session"
    assert first(closed(None)).next_step == (
        "wait for the recovery, unless the server's /health page shows a fault: its reason says what to do"
    )


def test_the_step_fits_the_state() -> None:
    for state, words in (
        ("recovering", "wait for the recovery; if this reason stays, read the server's log"),
        ("restarting", "wait for the recovery; if this reason stays"),
        ("no_quorum", "`waltz cluster check-connectivity`"),
        ("undecidable", "bring back the replicas that its server names"),
    ):
        found = first(closed(NotOpen(0, state, "why")))
        assert found.rule.name == "not-open"
        assert words in found.next_step
        assert "/health" not in found.next_step
    seen = page(metadata(), {}, healthy=False, not_open=NotOpen(0, "recovering", "0 of 3 answered"))
    assert seen.partitions[0].problem == f"its server {SERVER} reports recovering: 0 of 3 answered"


def test_the_step_fits_the_reason_of_the_fault_and_names_the_partitions_that_share_it() -> None:
    found = first(*(fault(OLDER, number=n) for n in (0, 1, 3)), partition(*replicas(C, C, C), number=2))
    assert found.rule.name == "zookeeper-older"
    assert "`waltz zk accept-restored -p 0-1,3 --dry-run`" in found.next_step
    assert found.partitions == (0, 1, 3)
    assert "`waltz storage lower-fence DIR -p 3 --dry-run`" in first(fault(FENCES, number=3)).next_step
    without_reason = first(fault(""))
    assert without_reason.rule.name == "fault"
    assert without_reason.next_step.startswith("settle what the reason names")


def test_what_is_known_from_outside_comes_first_where_it_says_more() -> None:
    older = fault(WHY, Standing.AHEAD, C, C)
    assert first(older).rule.name == "zookeeper-older"
    assert "empty, reset and remove none" in first(fault(f"b:1: {FORK}", C, R, R)).next_step
    seen = page(
        metadata(b=(4, 77), c=(4, 77)),
        {"b": held(session=4), "c": held(session=4)},
        healthy=False,
        refused=dict.fromkeys(("b:1", "c:1"), FORK),
        not_open=NotOpen(0, "fault", WHY),
    )
    assert seen.partitions[0].problem.startswith("1 of 3 replicas, 2 needed: b:1 (refused: ")


@pytest.mark.parametrize("standing", [Standing.BEHIND, S])
def test_nobody_is_said_to_fill_a_copy_of_a_partition_in_fault(standing: Standing) -> None:
    of_copy = find(status(fault(WHY, C, C, standing)))[1]
    assert of_copy.next_step == "it is not filled before the partition is open again: see there"


def test_a_partition_that_is_healthy_has_no_fault() -> None:
    """It was opened between two answers."""
    seen = page(metadata(), {}, not_open=NotOpen(0, "fault", WHY))
    assert seen.partitions[0].not_open is None
    assert find(seen) == []


# ---- who observes again and again


async def test_an_observation_finds_refused_copies_and_faults_and_asks_only_for_what_it_has_a_case_of() -> (
    None
):
    async with running(reports=NEW) as world:
        node = world.nodes[2].connect_string
        world.server.report = rows(NotOpen(0, "fault", WHY), refused=((1, node, FORK),))
        well, _, _, questions = await world.cost()
        assert (questions, world.server.parts) == (3, [])

        states = listed(world, SESSION.session_id)
        behind = {**states.replicas, node: ReplicaState(PartitionId(1), node, SESSION.session_id - 1, 5)}
        await world.write(1, replace(states, replicas=behind))
        for _ in range(2):
            seen, reads, of_nodes, questions = await world.cost()
            assert world.server.parts == [REPLICAS]
            assert questions == 5, "partitions, health, connectivity; partitions, report"
            assert of_nodes == [["NodeReportRequest"]] * 3
            assert world.standing(seen, 1, 2) is Standing.REFUSED
            assert seen.partitions[1].problem == f"{node} is refused ({FORK})"
            assert seen.partitions[0] is well.partitions[0], "it keeps its value"
            world.server.parts.clear()
        assert reads == ["sync /store"]

        world.server.health = {0: False, 1: True}
        seen, *_ = await world.cost()
        assert world.server.parts == [REPLICAS | NOT_OPEN], "one question for both"
        assert seen.partitions[0].fault == WHY
        assert [one.rule.name for one in find(seen)] == ["fault", "replica-refused"]
        assert await world.agreed() == seen

        world.server.health = {0: True, 1: True}
        await world.write(1, states)
        world.server.parts.clear()
        seen, _, _, questions = await world.cost()
        assert (questions, world.server.parts) == (3, [])
        assert all(p.healthy and p.current == 3 for p in seen.partitions)


async def test_an_observation_asks_nobody_about_nodes_that_are_away() -> None:
    """A server knows no more of their copies, and a node that is away is away for hours."""
    async with running(reports=NEW) as world:
        world.nodes[2].refuse = "as the test wants it"
        seen, *_ = await world.cost()
        assert world.standing(seen, 0, 2) is Standing.UNREACHABLE
        assert world.server.parts == []


async def test_an_observation_asks_a_server_of_0_13_2_again_after_minutes() -> None:
    """It ends the connection, and writes about it."""

    async def observed(world: World) -> tuple[str, list[int]]:
        world.server.parts.clear()
        seen = await world.observer.observe()
        return seen.partitions[0].problem, list(world.server.parts)

    async with running(reports=NEW) as world:
        world.server.health = {0: False, 1: True}
        said = f"its server {world.server.endpoint} reports that it is not healthy"
        assert await observed(world) == (said, [NOT_OPEN])
        for _ in range(3):
            assert await observed(world) == (said, [])
        world.now += ASK_AGAIN_SECONDS + 1
        assert await observed(world) == (said, [NOT_OPEN])
        world.server.report = rows(NotOpen(0, "fault", WHY))
        world.now += ASK_AGAIN_SECONDS + 1
        problem, _ = await observed(world)
        assert problem.endswith(f"reports fault: {WHY}")


async def test_a_report_that_is_late_does_not_make_a_fault_come_and_go() -> None:
    async with running(reports=NEW) as world:
        world.server.health = {0: False, 1: True}
        world.server.report = rows(NotOpen(0, "fault", WHY))
        assert (await world.observer.observe()).partitions[0].fault == WHY
        world.server.reports_late = True
        world.observer._reports._timeout_seconds = 0.05
        for _ in range(2):
            assert (await world.observer.observe()).partitions[0].fault == WHY
        world.now += LATE_SECONDS
        assert (await world.observer.observe()).partitions[0].not_open is None, "it is not known any longer"
        world.observer._reports._timeout_seconds = 2.0
        world.server.reports_late = False
        world.server.report = rows(NotOpen(0, "recovering", "asking"))
        seen = await world.observer.observe()
        assert (seen.partitions[0].fault, str(seen.partitions[0].not_open)) == ("", "recovering: asking")
        async with FakeServer(partitions=(0, 1), health={0: False, 1: True}).running() as other:
            await register(world.writer, other, 2)
            assert (await world.observer.observe()).partitions[0].not_open is None


async def test_each_server_is_believed_about_its_own_partitions_that_are_not_open() -> None:
    """One that had a partition before knows what was so then."""
    known = metadata()
    one, two = ServerDescriptor(1, SERVER), ServerDescriptor(2, Endpoint("other", 7))
    owned = {1: ((PartitionId(0), Generation(3)),), 2: ((PartitionId(1), Generation(3)),)}
    view = replace(
        view_of(known, registered=True),
        servers=(one, two),
        assignment=PartitionAssignment(1, 1, owned),
        metadata={PartitionId(0): known, PartitionId(1): known},
    )
    answers = Answers({number: ServerAnswer(health={0: False, 1: False}) for number in (1, 2)}, {})
    both = tuple(NotOpen(partition, "fault", WHY) for partition in (0, 1))
    questions: list[tuple[list[int], int]] = []

    async def ask(servers: Sequence[tuple[int, Endpoint]], parts: int) -> list[ServerReport]:
        questions.append(([number for number, _ in servers], parts))
        old = [replace(one, reason="old") for one in both]
        said = {1: (both[0], old[1]), 2: (old[0], both[1])}
        return [ServerReport(number, at, not_open=said[number]) for number, at in servers]

    found = await with_reports(view, answers, [0, 1], ask)
    assert found.not_open == dict(enumerate(both))
    assert questions == [([1, 2], NOT_OPEN)]
    assert (await with_reports(view, answers, [1], ask)).not_open == {1: both[1]}
    well = replace(answers, servers=dict.fromkeys((1, 2), ServerAnswer(health={0: True, 1: True})))
    silent = replace(answers, servers={})
    for nobody in (well, silent):
        assert (await with_reports(view, nobody, [0, 1], ask)).not_open == {}
    assert len(questions) == 2
