"""Settings for all tests of the storage node."""

import asyncio

# pytest-asyncio asks for the current loop before it sets its own; on Python 3.11 that would make one nobody closes
asyncio.set_event_loop(None)
