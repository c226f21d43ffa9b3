"""The process that attacks run in, so that they take no time from the bystander's loop.

`python -m tests.integration.hostile.attacker`: one JSON object per line on standard input, `{"attack": name,
"target": {...}}`; when the attack is over, one line `{"error": text or null}` on standard output.
"""

import asyncio
import json
import logging
import os
import sys
import traceback

from tests.integration.hostile.catalogue import BY_NAME
from tests.integration.hostile.wires import Target

_NICENESS = 10
"""An attacker's own processor is elsewhere; here it has to share one with those it attacks."""


def main() -> None:
    os.nice(_NICENESS)
    logging.getLogger("asyncio").setLevel(
        logging.CRITICAL
    )  # says that connections are cut, which is what is expected
    for line in sys.stdin:
        order = json.loads(line)
        error: str | None = None
        try:
            asyncio.run(_attack(order))
        except Exception:
            error = traceback.format_exc()
        print(json.dumps({"error": error}), flush=True)


async def _attack(order: dict[str, object]) -> None:
    target = order["target"]
    assert isinstance(target, dict)
    await BY_NAME[str(order["attack"])].run(Target(**target))


if __name__ == "__main__":
    main()
