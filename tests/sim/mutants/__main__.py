"""`python -m tests.sim.mutants`: see `run`."""

import sys

from tests.sim.mutants.run import main

sys.exit(main())
