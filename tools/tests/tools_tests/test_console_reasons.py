"""What the console shows of a copy that its server refuses and of a partition in fault: the words of the
server, and the step that fits."""

from __future__ import annotations

import re
from dataclasses import replace
from importlib.resources import files

from tools_tests.console_rig import Source, cluster, console
from waltz_admin.not_open import NotOpen
from waltz_cluster.replica_rules import Standing

FORK = "its log differs from that of the other replicas (fork)"
WHY = "a quorum holds records up to 4 only, but the low-water mark of c:1 proves 9 committed"


def _source() -> Source:
    """Of the copies on c:1 one is refused; partition 1 is in fault."""
    page = cluster(2)
    zero, one = page.partitions
    refused = replace(zero.replicas[2], standing=Standing.REFUSED, reason=FORK)
    zero = replace(zero, replicas=(*zero.replicas[:2], refused), problem=f"c:1 is refused ({FORK})")
    problem = f"its server {one.server} reports fault: {WHY}"
    one = replace(one, healthy=False, problem=problem, not_open=NotOpen(1, "fault", WHY))
    return Source(replace(page, partitions=(zero, one)))


async def test_a_refused_copy_is_shown_as_such_with_the_reason_of_its_server() -> None:
    async with console(_source()) as rig:
        page = await rig.page("/api/partitions/0")
        vote = page["replicas"][2]  # type: ignore[index]
        assert (vote["standing"], vote["why"], vote["votes"]) == ("refused", FORK, False)
        assert len(page["findings"]) == 1  # type: ignore[arg-type]
        found = page["findings"][0]  # type: ignore[index]
        assert found["rule"] == "replica-refused"
        assert "wait" not in found["next_step"]
        row = (await rig.page("/api/partitions"))["rows"][0]  # type: ignore[index]
        assert row["replicas"][2][:2] == ["c:1", "refused"]
        assert FORK in row["problem"]
        copies = (await rig.page("/api/changes"))["copies"]
        assert [(one["node"], one["standing"], one["why"]) for one in copies] == [  # type: ignore[attr-defined]
            ("c:1", "refused", FORK)
        ]


async def test_a_partition_in_fault_is_shown_with_the_reason_and_the_next_step() -> None:
    async with console(_source()) as rig:
        page = await rig.page("/api/partitions/1")
        assert page["verdict"] == f"partition 1 takes no writes: its server server-1:7 reports fault: {WHY}"
        assert len(page["findings"]) == 1  # type: ignore[arg-type]
        found = page["findings"][0]  # type: ignore[index]
        assert found["rule"] == "fault"
        assert WHY in found["finding"]
        assert "/health" not in found["next_step"]
        row = (await rig.page("/api/partitions"))["rows"][1]  # type: ignore[index]
        assert row["problem"] == f"its server server-1:7 reports fault: {WHY}"
        rules = [one["rule"] for one in (await rig.page("/api/findings"))["rows"]]  # type: ignore[attr-defined]
        assert rules == ["fault", "replica-refused"]


def test_every_standing_of_a_copy_has_a_colour() -> None:
    """One without looks like a copy that is well."""
    text = (files("waltz_tools.console") / "assets" / "dom.js").read_text()
    found = re.search(r"STANDING = \{(.*?)\};", text, re.DOTALL)
    assert found is not None
    named = {quoted or plain for quoted, plain in re.findall(r'(?:"([^"]+)"|(\w+)): "', found[1])}
    assert named == {standing.value for standing in Standing}
