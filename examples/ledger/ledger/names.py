"""Which names a request may have, in its path as in its body: those that every database takes."""

from __future__ import annotations

from aiohttp import web
from aiohttp.typedefs import Handler

LONGEST_NAME = 64


def check_names(*names: str) -> None:
    """ValueError. Not printable are NUL, which PostgreSQL does not store or compare with, and halves of
    surrogate pairs, which are no text."""
    if not all(0 < len(name) <= LONGEST_NAME and name.isprintable() for name in names):
        raise ValueError(f"names have 1 to {LONGEST_NAME} printable characters")


@web.middleware
async def names_in_path(request: web.Request, handler: Handler) -> web.StreamResponse:
    """400 for a path with another name, whatever the route."""
    try:
        check_names(*request.match_info.values())
    except ValueError as error:
        return web.json_response({"error": f"{type(error).__name__}: {error}"}, status=400)
    return await handler(request)
