"""`python -m bench.operator_process NAMES …`: the shipped operator (`waltz-operator …`) where no DNS is.

The names of pods are in the directory NAMES (`operator_names`).
"""

from __future__ import annotations

import sys
from pathlib import Path
from unittest.mock import patch

from bench.operator_names import NamedLoop
from waltz_operator import __main__ as command
from waltz_runtime import process


def main() -> int:
    names = Path(sys.argv[1])
    with patch.object(process, "new_event_loop", lambda: NamedLoop(names)):
        return command.main(sys.argv[2:])


if __name__ == "__main__":
    sys.exit(main())
