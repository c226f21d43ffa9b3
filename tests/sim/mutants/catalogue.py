"""All planted bugs, in the order of the code they are in."""

from __future__ import annotations

from collections.abc import Mapping

from tests.sim.mutants.in_client import CLIENT_MUTANTS
from tests.sim.mutants.in_detector import DETECTOR_MUTANTS
from tests.sim.mutants.in_directory import DIRECTORY_MUTANTS
from tests.sim.mutants.in_journal import JOURNAL_MUTANTS
from tests.sim.mutants.in_producers import PRODUCER_MUTANTS
from tests.sim.mutants.in_server import SERVER_MUTANTS
from tests.sim.mutants.in_storage import STORAGE_MUTANTS
from tests.sim.mutants.in_store import STORE_MUTANTS
from tests.sim.mutants.mutant import Mutant

MUTANTS: Mapping[str, Mutant] = {
    mutant.name: mutant
    for mutant in (
        *STORAGE_MUTANTS,
        *JOURNAL_MUTANTS,
        *STORE_MUTANTS,
        *SERVER_MUTANTS,
        *DETECTOR_MUTANTS,
        *CLIENT_MUTANTS,
        *DIRECTORY_MUTANTS,
        *PRODUCER_MUTANTS,
    )
}
