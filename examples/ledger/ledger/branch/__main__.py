"""`python -m ledger.branch CONFIG.yaml`"""

from __future__ import annotations

import logging
import signal
import threading

from werkzeug.serving import make_server

from ledger.branch.service import service
from ledger.service import Config, open_database
from waltz_client.opentelemetry import OpenTelemetryObserver


def main(config: Config) -> None:
    """Serve HTTP until SIGTERM or Ctrl-C."""
    logging.basicConfig(level=logging.INFO)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    # Where spans and metrics go is up to the SDK of OpenTelemetry that is set up; without one, nowhere.
    with (
        open_database(config.database) as engine,
        service(config.client, engine, OpenTelemetryObserver()) as app,
    ):
        server = make_server("127.0.0.1", config.port, app, threaded=True)
        serving = threading.Thread(target=server.serve_forever, name="http")
        serving.start()
        stop.wait()
        server.shutdown()
        serving.join()


if __name__ == "__main__":
    with Config.of_command_line() as config:
        main(config)
