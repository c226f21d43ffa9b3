"""An application that moves money between accounts under the name of a producer; killed and started again by
test_transfers.

python -m tests.integration.transfer_service CLIENT.yaml PARTITIONS STOP_FILE

The transfers of a partition are numbered; which one a number is follows from the number. They are appended
in batches, a batch when the one before it is in the log whole. So a batch below `last_sequence` may have
gaps, and whoever starts sends it again. It ends when the stop file is there (0), or when a newer instance has
begun (3).
"""

import asyncio
import json
import random
import sys
from pathlib import Path

from waltz_client import Append, AppendError, Committed, ProducerFencedError, SequenceInUseError, WaltzClient

NAME = "transfers"
BATCH = 8
ACCOUNTS = 10
FENCED = 3


def transfer(partition: int, number: int) -> bytes:
    """What has this number."""
    rng = random.Random(f"{partition}/{number}")
    source, target = rng.sample(range(ACCOUNTS), 2)
    return json.dumps({"event": number, "from": source, "to": target, "amount": rng.randint(1, 100)}).encode()


async def work(client: WaltzClient, partition: int, stop: Path) -> None:
    """Append transfer by transfer until it is time to stop."""
    last = await client.last_sequence(partition, deadline_seconds=120)
    number = max(0, last - last % BATCH)
    while not stop.exists():
        batch = [
            Append(partition, transfer(partition, one), sequence=one) for one in range(number, number + BATCH)
        ]
        while batch:
            results = await client.append_many(batch, deadline_seconds=5)
            for result in results:
                if isinstance(result, (ProducerFencedError, SequenceInUseError)):
                    raise result
            left = [
                one for one, result in zip(batch, results, strict=False) if isinstance(result, AppendError)
            ]
            batch = [*left, *batch[len(results) :]]
            if batch:
                await asyncio.sleep(0.05)
        assert all(isinstance(result, Committed) for result in results)
        number += BATCH


async def main(config: str, partitions: int, stop: Path) -> int:
    """Run until the end; the exit code."""
    fenced = False
    async with WaltzClient.connect(config, producer=NAME) as client:
        try:
            async with asyncio.TaskGroup() as group:
                for partition in range(partitions):
                    group.create_task(work(client, partition, stop))
        except* ProducerFencedError:
            fenced = True
    return FENCED if fenced else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))))
