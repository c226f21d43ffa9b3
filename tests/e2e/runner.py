"""Runs scenarios one after another: measures, judges, keeps evidence of what failed."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

from tests.e2e import evidence
from tests.e2e.chaos import OperatorKiller
from tests.e2e.kubectl import Timeout
from tests.e2e.report import Result
from tests.e2e.scenarios import Scenario
from tests.e2e.shell import CommandError
from tests.e2e.world import NAMESPACE, OPERATOR_NAMESPACE, World

AFTERWARDS_SECONDS = 2.0
_EXPECTED = (AssertionError, CommandError, Timeout, KeyError, ValueError)


def run_all(world: World, scenarios: Sequence[Scenario], folder: Path, *, seed: int) -> list[Result]:
    """Every scenario; later ones build on earlier ones, so the first that fails is the last that runs."""
    results: list[Result] = []
    beside: list[Future[Result]] = []
    with ThreadPoolExecutor(1) as background:
        for number, scenario in enumerate(scenarios):
            chance = random.Random(f"{seed}/{number}").randrange(2**32)
            if scenario.beside:
                print(f"e2e: {scenario.name} begins, alongside the next ones", flush=True)
                beside.append(
                    background.submit(
                        run_one, World(world.kubectl, journal=world.journal), scenario, folder, chance
                    )
                )
                continue
            if not scenario.written:
                results += _ended(beside)
                if any(result.failure for result in results):
                    break
            print(f"e2e: {scenario.name} …", flush=True)
            results.append(run_one(world, scenario, folder, chance))
            _say(results[-1])
            if results[-1].failure:
                break
        return results + _ended(beside)


def _ended(beside: list[Future[Result]]) -> list[Result]:
    """What ran next to the others, after it has ended."""
    found = [one.result() for one in beside]
    beside.clear()
    for result in found:
        _say(result)
    return found


def _say(result: Result) -> None:
    gap = result.longest_gap_seconds
    waited = [] if gap is None else [f"longest write gap {gap:.2f} s"]
    parts = "; ".join([f"{result.seconds:.0f} s", *waited, *result.notes])
    print(f"e2e: {result.name}: {result.failure or 'passed'} after {parts}", flush=True)


def run_one(world: World, scenario: Scenario, folder: Path, seed: int) -> Result:
    """One scenario with everything around it."""
    result = Result(scenario.name)
    world.notes = result.notes
    start = time.monotonic()
    try:
        with ExitStack() as stack:
            if scenario.written:
                world.load.begin_round(scenario.interval_seconds)
            if scenario.disturbed:
                operator = world.kubectl.in_namespace(OPERATOR_NAMESPACE)
                killer = stack.enter_context(OperatorKiller(operator, seed))
            scenario.run(world)
        if scenario.disturbed:
            result.operator_kills = killer.kills
        if scenario.written:
            _judge(world, result)
    except _EXPECTED as error:
        result.failure = f"{type(error).__name__}: {error}"
        place = folder / re.sub(r"[^a-z0-9]+", "-", scenario.name)
        evidence.keep(world.kubectl, [NAMESPACE, OPERATOR_NAMESPACE], place)
        result.failure += f" (logs and events: {place})"
    result.seconds = time.monotonic() - start
    return result


def _judge(world: World, result: Result) -> None:
    time.sleep(AFTERWARDS_SECONDS)
    world.load.wait_flowing()
    measured = world.load.measured()
    result.acknowledged = measured.acknowledged
    result.longest_gap_seconds = measured.longest_gap_seconds
    verdict = world.load.verdict("round")
    result.lost = int(verdict["lost"])
    if measured.unknown:
        result.notes.append(f"{measured.unknown} of unknown outcome")
    if not verdict["passed"]:
        raise AssertionError(f"the log is not what was acknowledged: {verdict}")
