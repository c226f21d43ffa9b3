"""`waltz k8s`: clusters that the operator runs on Kubernetes. Needs the extra `[k8s]`; nothing of it is
imported before a sub-command runs."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Coroutine, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from waltz_runtime.visible import visible
from waltz_tools.cli.common import (
    OutputFormat,
    OutputOption,
    parse_partitions,
    print_json,
    print_line,
    render_listings,
    render_result,
    run,
    writing_output,
)
from waltz_tools.errors import DegradedError, ToolError
from waltz_tools.extras import require

if TYPE_CHECKING:
    from waltz_tools.k8s.access import Session

T = TypeVar("T")

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)

ClusterArgument = Annotated[str, typer.Argument(help="Name of the WaltzCluster.", show_default=False)]
NamespaceOption = Annotated[str, typer.Option("--namespace", "-n", help="Namespace of the WaltzCluster.")]
KubeconfigOption = Annotated[
    str | None,
    typer.Option("--kubeconfig", help="Default: KUBECONFIG, else ~/.kube/config.", show_default=False),
]
ContextOption = Annotated[
    str | None, typer.Option("--context", help="Context of the kubeconfig.", show_default=False)
]
OperatorNamespaceOption = Annotated[
    str, typer.Option("--operator-namespace", help="Where the operator runs.")
]


def _run(
    work: Callable[[Session], Coroutine[Any, Any, T]],
    namespace: str,
    kubeconfig: str | None,
    context: str | None,
    operator_namespace: str = "waltz-system",
) -> T:
    """Run a sub-command with a connection to Kubernetes."""
    _check_extra()
    from waltz_tools.k8s.access import Place, open_session

    place = Place(namespace, kubeconfig, context, operator_namespace)

    async def body() -> T:
        async with open_session(place) as session:
            return await work(session)

    return run(body())


def _check_extra() -> None:
    require("waltz k8s needs the operator's library", "k8s", "waltz_operator", "kubernetes")


@app.command()
def status(
    cluster: Annotated[
        str | None, typer.Argument(help="Name of the WaltzCluster; all of them without it.")
    ] = None,
    namespace: NamespaceOption = "default",
    all_namespaces: Annotated[bool, typer.Option("--all-namespaces", "-A")] = False,
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = None,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Show conditions, nodes, what is in progress. Exit code 3 when a cluster is not Available."""

    async def work(session: Session) -> list[Any]:
        from waltz_operator.kube import kinds
        from waltz_tools.k8s import view

        if cluster is not None:
            bodies = [await session.cluster(cluster)]
            listings = view.details(bodies[0], await session.migrations(cluster))
        else:
            bodies = await session.kube.list(kinds.WALTZ_CLUSTER, None if all_namespaces else namespace)
            listings = [view.overview(bodies)]
        render_listings(output, listings)
        return [
            body["metadata"]["name"]
            for body in bodies
            if view.condition(body, "Available").get("status") != "True"
        ]

    unavailable = _run(work, namespace, kubeconfig, context)
    if unavailable:
        raise DegradedError(f"not Available: {', '.join(unavailable)}")


@app.command()
def plan(
    cluster: ClusterArgument,
    file: Annotated[
        Path | None,
        typer.Option(
            "--file", "-f", help="Plan for the specification in this file instead of the present one."
        ),
    ] = None,
    namespace: NamespaceOption = "default",
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = None,
    operator_namespace: OperatorNamespaceOption = "waltz-system",
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Show what the operator would do next, and what blocks it. Exit code 3 when something is blocked.
    Changes nothing."""

    async def work(session: Session) -> dict[str, Any]:
        from waltz_tools.k8s.preview import ask_plan
        from waltz_tools.k8s.rendering import read_cluster

        spec = None if file is None else read_cluster(file, namespace).get("spec", {})
        return await ask_plan(session, cluster, spec)

    found = _run(work, namespace, kubeconfig, context, operator_namespace)
    from waltz_tools.k8s.view import steps

    if output is OutputFormat.JSON:
        print_json(found)
    else:
        render_listings(output, steps(found))
    parts = [found, *found.get("migrations", {}).values()]
    blocked = [one["text"] for part in parts for one in part["blocked"]]
    if blocked:
        raise DegradedError(f"blocked: {blocked[0]}")


@app.command()
def upgrade(
    cluster: ClusterArgument,
    version: Annotated[str, typer.Argument(help="The release to run, such as 0.2.0.", show_default=False)],
    only_plan: Annotated[
        bool, typer.Option("--plan", help="Only show what would be restarted, and in which order.")
    ] = False,
    namespace: NamespaceOption = "default",
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = None,
    operator_namespace: OperatorNamespaceOption = "waltz-system",
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Bring a cluster to another release, or back (spec.version). Exit code 1 when the step is refused;
    the message names the way. --plan writes nothing."""

    async def work(session: Session) -> dict[str, Any]:
        from waltz_tools.k8s import upgrade as versions

        found = await versions.ask(session, cluster, version)
        if not only_plan and not found["refused"]:
            await versions.begin(session, cluster, version)
        return found

    found = _run(work, namespace, kubeconfig, context, operator_namespace)
    from waltz_tools.k8s.view import restarts

    if output is OutputFormat.JSON:
        print_json(found)
    else:
        render_listings(output, [restarts(found)])
    if found["refused"]:
        raise ToolError(found["refused"])


@app.command()
def migrate(
    cluster: ClusterArgument,
    move: Annotated[
        str | None, typer.Option("--move", help="FROM:TO, nodes of one group, such as 1-0:1-1.")
    ] = None,
    drain: Annotated[
        str | None, typer.Option("--drain", help="Node whose partitions go to the others of its group.")
    ] = None,
    replace: Annotated[
        str | None, typer.Option("--replace", help="Node whose disk is lost and must be filled again.")
    ] = None,
    rebalance: Annotated[
        str | None, typer.Option("--rebalance", help="Group to spread evenly over its nodes.")
    ] = None,
    by_bytes: Annotated[
        bool, typer.Option("--by-bytes", help="With --rebalance: spread bytes, not numbers of partitions.")
    ] = False,
    partition: Annotated[
        str | None, typer.Option("--partition", "-p", help="With --move: ids and ranges, such as 0-6,7.")
    ] = None,
    name: Annotated[
        str | None, typer.Option("--name", help="Name of the WaltzMigration; default: made from the time.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only have the plan made.")] = False,
    rate_limit: Annotated[
        int | None, typer.Option("--rate-limit", min=0, help="Bytes per second of a copy job; 0 = no limit.")
    ] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait for the end.")] = False,
    timeout: Annotated[float, typer.Option("--timeout", min=1, help="Seconds to wait at most.")] = 3600,
    namespace: NamespaceOption = "default",
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = None,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Move copies of partitions between nodes (by a WaltzMigration). With --wait, exit code 1 when it
    fails."""
    partitions = None if partition is None else tuple(parse_partitions(partition))
    called = name or f"{cluster}-{datetime.now(UTC):%Y%m%d-%H%M%S}"

    async def work(session: Session) -> Mapping[str, Any]:
        from waltz_tools.k8s import changes

        wish = changes.Wish(move, drain, replace, rebalance, partitions, dry_run, rate_limit, by_bytes)
        await changes.migrate(session, cluster, called, wish)
        if not wait:
            return {}
        return await changes.follow(session, called, timeout, _show_status)

    status_ = _run(work, namespace, kubeconfig, context)
    phase = str(status_.get("phase", "Pending"))
    render_result(output, f"migration {called}: {phase}", migration=called, phase=phase, status=status_)
    if phase in ("Failed", "Cancelled"):
        raise ToolError(f"migration {called}: {phase}: {status_.get('message', '')}")


def _show_status(status_: Mapping[str, Any]) -> None:
    parts = (status_.get("phase"), status_.get("progress"), status_.get("message"))
    sys.stderr.write(visible(" ".join(str(part) for part in parts if part)) + "\n")


@app.command()
def restart(
    cluster: ClusterArgument,
    part: Annotated[str, typer.Argument(help="storage, server or zookeeper.", show_default=False)],
    namespace: NamespaceOption = "default",
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = None,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Restart all pods of one part, one at a time, each when no partition loses its quorum by it."""
    if part not in ("storage", "server", "zookeeper"):
        raise ToolError(f"restart storage, server or zookeeper, not {part!r}")
    now = datetime.now(UTC).isoformat(timespec="seconds")

    async def work(session: Session) -> None:
        from waltz_tools.k8s.changes import restart as ask

        await ask(session, cluster, part, now)

    _run(work, namespace, kubeconfig, context)
    render_result(
        output, f"{part} of {cluster}: restart asked for at {now}", cluster=cluster, part=part, at=now
    )


@app.command()
def shell(
    cluster: ClusterArgument,
    command: Annotated[
        list[str] | None,
        typer.Argument(help="What to run there, after --; default: a shell.", show_default=False),
    ] = None,
    image: Annotated[
        str | None,
        typer.Option("--image", help="Image of the tools; default: waltz-tools next to that of the servers."),
    ] = None,
    secret: Annotated[
        str | None,
        typer.Option("--secret", help="Secret with a client's certificate; default: the cluster's own."),
    ] = None,
    admin: Annotated[
        bool,
        typer.Option(
            "--admin",
            help="With the operator's certificate, for repairs: storage nodes take no other on their admin port.",
        ),
    ] = False,
    timeout: Annotated[float, typer.Option("--timeout", min=1, help="Seconds until the pod must run.")] = 120,
    namespace: NamespaceOption = "default",
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = None,
) -> None:
    """Start a pod that has the waltz command, the cluster's certificate and configuration; run a shell, or a
    command, in it; remove it. The exit code is the command's."""

    async def work(session: Session) -> int:
        from waltz_tools.k8s import shell as pods

        pods.kubectl(session.place, "", (), terminal=False)  # before a pod is made for nothing
        async with pods.opened(session, cluster, image, secret, timeout, admin=admin) as pod:
            line = pods.kubectl(session.place, pod, command or (), terminal=sys.stdin.isatty())
            return await pods.attach(line)

    code = _run(work, namespace, kubeconfig, context)
    if code:
        raise typer.Exit(code)


@app.command()
def console(
    cluster: ClusterArgument,
    port: Annotated[int, typer.Option("--port", min=1, max=65535, help="Port of this machine.")] = 8090,
    namespace: NamespaceOption = "default",
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = None,
) -> None:
    """Forward a port to the console of a cluster (spec.console), and print the link that opens it; Ctrl-C
    ends it."""

    async def work(session: Session) -> int:
        from waltz_tools.k8s import console as consoles
        from waltz_tools.k8s.shell import attach

        line = consoles.forwarding(session.place, cluster, port)
        print_line(f"console: {await consoles.link(session, cluster, port)}")
        return await attach(line)

    code = _run(work, namespace, kubeconfig, context)
    if code:
        raise typer.Exit(code)


@app.command()
def pause(
    cluster: ClusterArgument,
    resume: Annotated[bool, typer.Option("--resume", help="Resume.")] = False,
    namespace: NamespaceOption = "default",
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = None,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Stop the operator from changing a cluster, until --resume."""

    async def work(session: Session) -> bool:
        from waltz_tools.k8s.changes import set_paused

        return await set_paused(session, cluster, not resume)

    changed = _run(work, namespace, kubeconfig, context)
    word = "resumed" if resume else "paused"
    line = f"{cluster} is {word}" if changed else f"{cluster} was {word} already"
    render_result(output, line, cluster=cluster, paused=not resume, changed=changed)


@app.command()
def report(
    cluster: ClusterArgument,
    file: Annotated[
        Path | None,
        typer.Option("--file", "-f", help="The archive; default: waltz-CLUSTER-TIME.tar.gz here."),
    ] = None,
    namespace: NamespaceOption = "default",
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = None,
    operator_namespace: OperatorNamespaceOption = "waltz-system",
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Collect in one archive what a supporter needs: objects, events, logs, plan. Secrets
    are left out."""
    path = file or Path(f"waltz-{cluster}-{datetime.now(UTC):%Y%m%d-%H%M%S}.tar.gz")

    async def work(session: Session) -> dict[str, str]:
        from waltz_operator.kube import config
        from waltz_tools.k8s.bundle import collect
        from waltz_tools.k8s.logs import ApiPodLogs

        logs = ApiPodLogs(await config.load(kubeconfig, context))
        return await collect(session, cluster, logs)

    files = _run(work, namespace, kubeconfig, context, operator_namespace)
    from waltz_tools.k8s.bundle import write_archive

    size = write_archive(files, path, time.time())
    line = f"{path}: {len(files)} files, {size} bytes; review it before you share it"
    render_result(output, line, path=path, files=sorted(files), bytes=size)


@app.command()
def render(
    file: Annotated[Path, typer.Argument(help="A file with one WaltzCluster.", show_default=False)],
    certificates: Annotated[
        bool,
        typer.Option(
            "--certificates", help="Make the Secrets of tls.mode SelfSigned too: with private keys."
        ),
    ] = False,
    namespace: NamespaceOption = "default",
    output: Annotated[OutputFormat | None, typer.Option("--output", help="json; YAML without it.")] = None,
) -> None:
    """Print the manifests of a cluster, for a Kubernetes without the operator; connects to nothing."""
    _check_extra()
    import yaml

    from waltz_tools.k8s import rendering

    body = rendering.read_cluster(file, namespace)
    objects = rendering.render(body, certificates=certificates, now=time.time())
    if output is OutputFormat.JSON:
        print_json(objects)
    else:
        with writing_output():
            sys.stdout.write(yaml.safe_dump_all(objects, sort_keys=False, width=120))
            sys.stdout.flush()
