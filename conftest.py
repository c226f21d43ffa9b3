"""Settings for the tests of every member."""

import asyncio
import signal
from collections import Counter
from collections.abc import Generator

import pytest
from hypothesis import HealthCheck, settings

# An example that takes long says something of the machine, which does other things too; speed is measured in
# bench/.
settings.register_profile("waltz", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("waltz")

# pytest-asyncio and looptime ask for the current loop, in synchronous tests too and before one is set. Unless
# it has been said that there is none, Python 3.11 makes one for who asks first, and nobody closes it.
asyncio.set_event_loop(None)

# A shell ignores Ctrl-C for what it starts in the background (`make test &`), and processes that a test
# starts and interrupts would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

_AGAIN_SECONDS = 5.0


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Two empty turns of a loop in place of 42 before its virtual time passes: they are for coroutines that
    take several turns to set their own timer, and cost most of the time of such a test."""
    for item in items:
        if item.get_closest_marker("looptime") is not None:
            item.add_marker(pytest.mark.looptime(noop_cycles=2))


@pytest.hookimpl(wrapper=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: object) -> Generator[None, object, object]:
    """The time limit of a test strikes again and again until the test has ended.

    pytest-timeout raises once, wherever the test happens to be. Inside a callback of an event loop that is
    the end of it: the loop hands it to its exception handler and continues, and the test never ends.
    """
    done = yield
    left, again = signal.getitimer(signal.ITIMER_REAL)
    if left and not again:
        signal.setitimer(signal.ITIMER_REAL, left, _AGAIN_SECONDS)
    return done


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """How much was checked: numbers that tests reported with `record_property`, added up by name, also those
    of xdist's workers."""
    sums: Counter[str] = Counter()
    for report in terminalreporter.stats.get("passed", ()):
        sums.update({name: value for name, value in report.user_properties if isinstance(value, int)})
    for name, value in sorted(sums.items()):
        terminalreporter.write_line(f"{name}: {value:,}")
