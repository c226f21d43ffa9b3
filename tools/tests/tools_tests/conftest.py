"""Shared by the tests of the tools."""

import asyncio

# pytest-asyncio asks for the current loop before it sets its own; on Python 3.11 that would make one nobody closes
asyncio.set_event_loop(None)
