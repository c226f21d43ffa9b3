"""The pictures of a run: throughput next to the yardstick's, latency, CPU per role, every verdict; and the
curves over the number of partitions."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")

from matplotlib import pyplot
from matplotlib.axes import Axes

from bench.figures import Figure, Wanted

OURS, LIMIT, BAD = "#2a6fbb", "#b8c4d0", "#c0392b"
ROLE_COLOURS = {"client": "#7fb069", "server": "#2a6fbb", "storage": "#e6aa68"}


def write_plot(figures: Sequence[Figure], path: Path) -> None:
    """One PNG with four panels."""
    plot, axes = pyplot.subplots(2, 2, figsize=(18, 12), layout="constrained")
    try:
        writes = [figure for figure in figures if "limit_per_second" in figure.details]
        _throughput(writes, axes[0][0])
        _latency(writes, axes[0][1])
        _cpu(writes, axes[1][0])
        _verdicts([figure for figure in figures if figure.target is not None], axes[1][1])
        plot.suptitle(
            f"Waltz benchmark: 512 B, 3 replicas, fdatasync, {os.cpu_count()} cores carrying everything"
        )
        plot.savefig(path, dpi=110)
    finally:
        pyplot.close(plot)


def write_curves(figures: Sequence[Figure], path: Path) -> None:
    """One PNG: appends per second over the number of partitions, with the journal and without it; nothing
    where no curve was measured."""
    curves: dict[str, list[tuple[int, float]]] = {}
    for figure in figures:
        if "curve" in figure.details:
            point = (int(_detail(figure, "partitions")), figure.value)
            curves.setdefault(str(figure.details["curve"]), []).append(point)
    if not curves:
        return
    plot, axis = pyplot.subplots(figsize=(9, 6), layout="constrained")
    try:
        for name, points in sorted(curves.items()):
            partitions, rates = zip(*sorted(points), strict=True)
            style = "--" if "no journal" in name else "-"
            colour = OURS if "pipelined" in name else BAD
            axis.plot(partitions, rates, style, color=colour, marker="o", label=name)
        axis.set_xscale("log")
        axis.set_yscale("log")
        axis.set_xlabel("partitions")
        axis.set_title("appends per second")
        axis.grid(visible=True, which="both", alpha=0.3)
        axis.legend(fontsize=8)
        plot.savefig(path, dpi=110)
    finally:
        pyplot.close(plot)


def _detail(figure: Figure, name: str) -> float:
    value = figure.details.get(name)
    return float(value) if isinstance(value, int | float) else 0.0


def _label(figure: Figure) -> str:
    return f"{figure.details.get('label', figure.name)}, {figure.group.rpartition(', ')[2]}"


def _rows(axis: Axes, figures: Sequence[Figure]) -> list[int]:
    rows = list(range(len(figures)))
    axis.set_yticks(rows, [_label(f) for f in figures], fontsize=7)
    axis.invert_yaxis()
    return rows


def _throughput(figures: Sequence[Figure], axis: Axes) -> None:
    rows = _rows(axis, figures)
    axis.barh(rows, [_detail(f, "limit_per_second") for f in figures], color=LIMIT, label="bare pipeline")
    axis.barh(rows, [f.value for f in figures], height=0.5, color=OURS, label="Waltz")
    for row, figure in zip(rows, figures, strict=True):
        axis.text(figure.value, row, f" {figure.value:,.0f}", va="center", fontsize=7)
    axis.set_xscale("log")
    axis.set_title("appends per second, log scale")
    axis.legend(fontsize=8)


def _latency(figures: Sequence[Figure], axis: Axes) -> None:
    rows = _rows(axis, figures)
    axis.barh(rows, [_detail(f, "p99_ms") for f in figures], color=LIMIT, label="p99")
    axis.barh(rows, [_detail(f, "p50_ms") for f in figures], height=0.5, color=OURS, label="p50")
    axis.set_xscale("log")
    axis.set_title("milliseconds from append to commit, log scale")
    axis.legend(fontsize=8)


def _cpu(figures: Sequence[Figure], axis: Axes) -> None:
    rows = _rows(axis, figures)
    left = [0.0] * len(figures)
    for role, colour in ROLE_COLOURS.items():
        widths = [_detail(f, f"cpu_us_{role}") for f in figures]
        axis.barh(rows, widths, left=left, color=colour, label=role)
        left = [a + b for a, b in zip(left, widths, strict=True)]
    axis.set_title("CPU microseconds per append, all processes of a role together")
    axis.legend(fontsize=8)


def _verdicts(figures: Sequence[Figure], axis: Axes) -> None:
    """How far each figure is from its target: 1 is the target, more is better."""
    margins = []
    for figure in figures:
        target = figure.target
        if target is None:
            continue
        good, bad = (
            (figure.value, target.bound) if target.wanted is Wanted.AT_LEAST else (target.bound, figure.value)
        )
        margins.append(min(good / bad, 10.0) if bad > 0 else 10.0)
    rows = list(range(len(margins)))
    axis.barh(rows, margins, color=[OURS if margin >= 1 else BAD for margin in margins])
    labels = [f"{f.name} {f.target}, {f.group}"[:70] for f in figures]
    axis.set_yticks(rows, labels, fontsize=7)
    axis.invert_yaxis()
    axis.axvline(1.0, color="black", linewidth=1)
    axis.set_title("distance from the target (right of the line: met)")
