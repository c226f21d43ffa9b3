"""`python -m tests.unit_mutants`: see `run`."""

import sys

from tests.unit_mutants.run import main

sys.exit(main())
