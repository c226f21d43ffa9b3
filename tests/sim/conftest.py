"""Worlds end with a collection of garbage; here it looks at the world only, not at everything pytest has in
memory."""

import gc
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True, scope="module")
def small_heap() -> Iterator[None]:
    """What was there before the module's first world is left out of collections until its last."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()
