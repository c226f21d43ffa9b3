"""Settings for the tests of every member."""

import asyncio

# pytest-asyncio and looptime ask for the current loop, in synchronous tests too and before one is set. Unless it has
# been said that there is none, Python 3.11 makes one for who asks first, and nobody closes it.
asyncio.set_event_loop(None)
