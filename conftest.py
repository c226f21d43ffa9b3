"""Settings for the tests of every member."""

import asyncio
from collections import Counter

import pytest

# pytest-asyncio and looptime ask for the current loop, in synchronous tests too and before one is set. Unless it has
# been said that there is none, Python 3.11 makes one for who asks first, and nobody closes it.
asyncio.set_event_loop(None)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """How much was looked at: numbers that tests told with ``record_property``, added up by name, also those of xdist's workers."""
    sums: Counter[str] = Counter()
    for report in terminalreporter.stats.get("passed", ()):
        sums.update({name: value for name, value in report.user_properties if isinstance(value, int)})
    for name, value in sorted(sums.items()):
        terminalreporter.write_line(f"{name}: {value:,}")
