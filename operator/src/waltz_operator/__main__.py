"""`waltz-operator run`, `plan` and `copy-partition`: process 1 of the operator's pods.

Exit codes: `waltz_runtime.exit_code`; a lost Lease is 1.
"""

from __future__ import annotations

import waltz_runtime.early_end  # noqa: F401 - before what takes a while to import

# isort: split
import argparse
import asyncio
import math
import os
import sys
from collections.abc import Sequence

from waltz_operator import settings
from waltz_operator.jobs import copy_partition
from waltz_runtime import standard_streams
from waltz_runtime.command import CommandParser
from waltz_runtime.errors import LogLevelError
from waltz_runtime.logs import configure_logging
from waltz_runtime.process import run_service

SHUTDOWN_SECONDS = 20.0


def _seconds(text: str) -> float:
    """A time in seconds, more than none."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"{text} is not a number of seconds above 0")
    return value


def parser() -> argparse.ArgumentParser:
    """All commands and options."""
    top = CommandParser(prog="waltz-operator", description="The Kubernetes operator of Waltz.")
    top.add_version("waltz-operator")
    common = CommandParser(add_help=False)
    common.add_argument("--log-level", default=os.environ.get("WALTZ_LOG_LEVEL", "INFO"))
    common.add_argument("--log-json", action="store_true", default=bool(os.environ.get("WALTZ_LOG_JSON")))
    commands = top.add_subparsers(dest="command", required=True, parser_class=CommandParser)
    run = commands.add_parser("run", parents=[common], help="look after WaltzClusters and WaltzMigrations")
    run.add_argument(
        "--namespace",
        action="append",
        default=[],
        help="work in this namespace only (repeatable; default: all)",
    )
    run.add_argument("--kubeconfig", help="default: the service account of the pod, else ~/.kube/config")
    run.add_argument("--lease-namespace", default=settings.own_namespace())
    run.add_argument("--lease-name", default="waltz-operator")
    run.add_argument("--http-host", default="", help="address to bind; default: every one")
    run.add_argument("--http-port", type=int, default=settings.DEFAULT_HTTP_PORT)
    run.add_argument(
        "--resync-seconds",
        type=_seconds,
        default=60.0,
        help="observe every object at least this often, in seconds",
    )
    copy = commands.add_parser(
        "copy-partition", parents=[common], help="copy and verify one partition; what copy Jobs run"
    )
    copy_partition.add_arguments(copy)
    look = commands.add_parser(
        "plan", parents=[common], help="print what the next pass would do; writes nothing"
    )
    look.add_argument("cluster", help="name of the WaltzCluster")
    look.add_argument("--namespace", default="default", help="its namespace")
    look.add_argument("--spec", default="", help="plan for this specification (JSON) instead of its own")
    look.add_argument("--kubeconfig", help="default: the service account of the pod, else ~/.kube/config")
    return top


def operator_settings(options: argparse.Namespace) -> settings.OperatorSettings:
    """Of the command `run`."""
    return settings.OperatorSettings(
        namespaces=tuple(dict.fromkeys(options.namespace)),
        kubeconfig=options.kubeconfig,
        lease_namespace=options.lease_namespace,
        lease_name=options.lease_name,
        identity=settings.own_identity(),
        operator_image=os.environ.get("WALTZ_OPERATOR_IMAGE", ""),
        http_host=options.http_host,
        http_port=options.http_port,
        resync_seconds=options.resync_seconds,
        images=settings.image_defaults(),
    )


async def _run(options: argparse.Namespace, stop: asyncio.Event) -> None:
    from waltz_operator.run.process import run_operator  # kopf and the Kubernetes client: not for copy Jobs

    await run_operator(operator_settings(options), stop)


async def _preview(options: argparse.Namespace, stop: asyncio.Event) -> None:
    from waltz_operator.run import preview

    await preview.run(options, stop)


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    standard_streams.complete()
    commands = parser()
    options = commands.parse_args(arguments)
    try:
        configure_logging(options.log_level, options.log_json)
    except LogLevelError as error:
        commands.error(str(error))
    work = {"copy-partition": copy_partition.run, "plan": _preview, "run": _run}[options.command]
    return run_service(lambda stop: work(options, stop), shutdown_timeout_seconds=SHUTDOWN_SECONDS)


if __name__ == "__main__":
    sys.exit(main())
