"""`python -m inventory CONFIG.yaml`"""

from __future__ import annotations

import asyncio
import signal
import sys

from aiohttp import web

from inventory.service import Config, instance


async def main(config: Config) -> None:
    """Serve HTTP until SIGTERM or Ctrl-C."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with instance(config) as app:
        runner = web.AppRunner(app, shutdown_timeout=1.0)
        await runner.setup()
        try:
            try:
                await web.TCPSite(runner, "127.0.0.1", config.port, reuse_address=True).start()
            except OSError as error:
                sys.exit(f"port {config.port}: {error.strerror}")
            await stop.wait()
        finally:
            await runner.cleanup()


if __name__ == "__main__":
    with Config.of_command_line() as config:
        asyncio.run(main(config))
