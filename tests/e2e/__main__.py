"""`python -m tests.e2e` (make e2e): images, cluster, scenarios, table. Exit code 0 when every scenario
passed.

Where docker or kind is missing it says so in one line and ends with code 0: there is nothing to try.
Scenarios are named by a part of their name. Most need what `fresh install` has installed:
`--only 'fresh install' --only NAME`, or `--reuse` with the cluster of an earlier `--keep`.
"""

from __future__ import annotations

import argparse
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.e2e import images, kind, report
from tests.e2e.kubectl import Kubectl
from tests.e2e.preconditions import what_is_missing
from tests.e2e.runner import run_all
from tests.e2e.scenarios import ALL
from tests.e2e.shell import ROOT, CommandError
from tests.e2e.world import NAMESPACE, World

FOLDER = ROOT / "build" / "e2e"


def main(arguments: list[str] | None = None) -> int:
    """The whole run."""
    parser = argparse.ArgumentParser(prog="python -m tests.e2e", description=__doc__)
    parser.add_argument("--keep", action="store_true", help="leave the cluster behind")
    parser.add_argument(
        "--reuse", action="store_true", help="work on the cluster that --keep left, with the images it has"
    )
    parser.add_argument("--until", default="", metavar="NAME", help="stop after this scenario")
    parser.add_argument("--first", default="", metavar="NAME", help="with --reuse: begin with this scenario")
    parser.add_argument(
        "--only", action="append", metavar="NAME", help="this scenario alone (may be repeated)"
    )
    parser.add_argument(
        "--long", action="store_true", help="with the long scenarios, most of which attack the cluster"
    )
    parser.add_argument("--journal", action="store_true", help="storage nodes have the node journal")
    parser.add_argument("--seed", type=int, default=1, help="of the times at which the operator is killed")
    options = parser.parse_args(arguments)
    missing = what_is_missing()
    if missing is not None:
        print(missing)
        return 0
    start = time.monotonic()
    FOLDER.mkdir(parents=True, exist_ok=True)
    try:
        results = _run(options, FOLDER)
    except CommandError as error:
        print(f"e2e: {error}", file=sys.stderr)
        return 1
    report.write(results, FOLDER / "results.json")
    print(report.table(results))
    print(f"{time.monotonic() - start:.0f} s in all")
    return 1 if any(result.failure for result in results) else 0


def _run(options: argparse.Namespace, folder: Path) -> list[report.Result]:
    wanted = [scenario for scenario in ALL if options.long or not scenario.long]
    only = options.only or [""]
    scenarios = [scenario for scenario in wanted if any(name in scenario.name for name in only)]
    names = [scenario.name for scenario in scenarios]
    first = next((number for number, name in enumerate(names) if options.first in name), 0)
    last = next(
        (number for number, name in enumerate(names) if options.until and options.until in name), None
    )
    scenarios = scenarios[first : None if last is None else last + 1]
    start = time.monotonic()
    with ThreadPoolExecutor(1) as background:
        building = None if options.reuse else background.submit(images.build)
        with kind.cluster(folder, keep=options.keep, reuse=options.reuse) as kubeconfig:
            print(f"e2e: cluster made after {time.monotonic() - start:.0f} s", flush=True)
            if building is not None:
                kind.load(building.result())
                background.submit(
                    images.build_spark
                )  # needed late; the scenario asks for it again, and finds it done
                print(f"e2e: images built and loaded after {time.monotonic() - start:.0f} s", flush=True)
            world = World(Kubectl(kubeconfig, NAMESPACE), journal=options.journal)
            return run_all(world, scenarios, folder, seed=options.seed)


if __name__ == "__main__":
    sys.exit(main())
