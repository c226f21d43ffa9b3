"""`python -m tests.integration.nemesis.load KIND NAME CONFIG DIRECTORY SEED`: one load process, until
SIGTERM.

Losing ZooKeeper or servers is its daily bread: it connects again. Exit code 70 and a line in the journal for
what must not happen: an error that is no matter of availability, a client ahead of the log.
"""

import argparse
import asyncio
import logging
import random
import signal
import sys
import traceback
from collections.abc import Awaitable, Callable
from pathlib import Path

import yaml

from tests.integration.nemesis.load import readers, writers
from tests.integration.nemesis.load.context import Context
from waltz_client import WaltzClient
from waltz_client.errors import RequestDeadlineError
from waltz_cluster.errors import ConnectError, StoreError

WORKLOADS: dict[str, Callable[[WaltzClient, Context], Awaitable[None]]] = {
    "bank": writers.bank,
    "counters": writers.counters,
    "blind": writers.blind,
    "feed": readers.feed,
    "slow-feed": readers.slow_feed,
    "consumer": readers.consumer,
}
_AGAIN_SECONDS = 0.5
_STOP_SECONDS = 20.0
_WINDOW = 100


async def run(kind: str, context: Context, config: Path, *, compressed: bool) -> None:
    """One client object after the other, until asked to stop. `compressed`: it asks for compressed
    blocks."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, context.stop.set)
    settings = yaml.safe_load(config.read_text()) | {
        "client.maxConcurrentTransactions": _WINDOW,
        "client.feedCompression": "zstd" if compressed else "none",
    }
    while not context.stop.is_set():
        try:
            async with WaltzClient.connect(settings) as client:
                await WORKLOADS[kind](client, context)
                await client.flush_transactions(deadline_seconds=_STOP_SECONDS)
        except* (ConnectError, StoreError, RequestDeadlineError) as errors:
            context.journal.remark(f"connecting again after: {errors.exceptions[0]}")
            await context.pause(_AGAIN_SECONDS)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.integration.nemesis.load", description=__doc__)
    parser.add_argument("kind", choices=sorted(WORKLOADS))
    parser.add_argument("name")
    parser.add_argument("config", type=Path)
    parser.add_argument("directory", type=Path)
    parser.add_argument("seed", type=int)
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.ERROR)
    context = Context(arguments.name, arguments.directory, arguments.seed)
    try:
        compressed = random.Random(f"{arguments.seed}/{arguments.name}/compression").random() < 0.5
        asyncio.run(run(arguments.kind, context, arguments.config, compressed=compressed))
    except BaseException:
        context.journal.bug(traceback.format_exc())
        raise
    finally:
        context.journal.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
