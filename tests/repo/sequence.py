"""A sequence diagram as text, drawn as SVG that is readable on light and on dark pages. Pure.

```
title: One line
desc: What the figure shows, for those who do not see it.
lanes: client | server | node
client -> server: a message
server --> client: an answer
server -x node: a message that is refused or lost
note server: what happens there
old server: its lane is drawn in the first colour from here on, with this word
new server: the same in the second colour
== a heading across ==
& note node: a line that begins with & is drawn level with the one before
```
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from html import escape

LANE, MARGIN, HEAD, STEP = 158, 92, 52, 34
LETTER = 6.4
"""Pixels of a character of 12 px, on average; a little more than most fonts need."""

COLOURS = """\
.paper { fill: PAPER } text { fill: INK } .halo { stroke: PAPER } .lane, .box { fill: BOX; stroke: LINE } .note { fill: NOTE; stroke: LINE }
.life, .rule { stroke: LINE } .old { stroke: OLD } .new { stroke: NEW } .message { stroke: INK } .tip { fill: INK } .refused, .cross { stroke: BAD }
"""
"""Once for light and once for dark pages: without variables, which not every viewer knows."""
LIGHT = {"PAPER": "#ffffff", "INK": "#1f2933", "LINE": "#7b8794", "BOX": "#e8eef4", "NOTE": "#fff3cf", "OLD": "#c98a1b", "NEW": "#2a7fb8", "BAD": "#b3261e"}  # fmt: skip
DARK = {"PAPER": "#12181f", "INK": "#e4e9ee", "LINE": "#8c99a6", "BOX": "#263240", "NOTE": "#45391a", "OLD": "#e0a83f", "NEW": "#5fb0e5", "BAD": "#ff8a80"}  # fmt: skip
SHAPES = """\
text { font: 12px system-ui, sans-serif; text-anchor: middle } .heading, .lane + text { font-weight: 600 } .rule { stroke-dasharray: 1 3 }
.halo { paint-order: stroke; stroke-width: 5px } .old, .new { stroke-width: 5 } .cross { stroke-width: 2 }
.message { fill: none; marker-end: url(#tip) } .answer { stroke-dasharray: 5 3 } .refused { marker-end: url(#cross) }
"""
KINDS = {"->": "message", "-->": "message answer", "-x": "message refused"}


class FigureError(ValueError):
    """A line of a figure's text that says nothing."""


@dataclass
class Figure:
    """What the text says."""

    title: str = ""
    desc: str = ""
    lanes: list[str] = field(default_factory=list)
    rows: list[tuple[int, str, str, str, str]] = field(default_factory=list)
    """Of each line: the level, the kind, two lanes (equal for a box, empty for a heading), the words."""

    @property
    def width(self) -> int:
        return 2 * MARGIN + LANE * (len(self.lanes) - 1)

    @property
    def levels(self) -> int:
        return self.rows[-1][0] + 1 if self.rows else 0


def parsed(text: str) -> Figure:
    figure = Figure()
    for number, line in enumerate(text.splitlines(), start=1):
        head, _, words = line.partition(": ")
        if head in ("title", "desc"):
            setattr(figure, head, words)
        elif head == "lanes":
            figure.lanes = words.split(" | ")
        elif line.strip():
            figure.rows.append(_row(figure, line, number))
    return figure


def _row(figure: Figure, line: str, number: int) -> tuple[int, str, str, str, str]:
    level = figure.levels - line.startswith("& ")
    head, _, words = line.removeprefix("& ").partition(": ")
    if line.startswith("== "):
        return level, "heading", "", "", line.strip("= ")
    if (found := re.fullmatch(r"(.+?) (-->|->|-x) (.+)", head)) and words:
        row = level, KINDS[found[2]], found[1], found[3], words
    elif (found := re.fullmatch(r"(note|old|new) (.+)", head)) and words:
        row = level, found[1], found[2], found[2], words
    else:
        raise FigureError(f"line {number} is none of the kinds of line: {line}")
    for lane in row[2:4]:
        if lane not in figure.lanes:
            raise FigureError(f"line {number} names {lane}, which is no lane")
    return row


def drawn(text: str) -> str:
    """The figure as one SVG document."""
    figure = parsed(text)
    width, height = figure.width, HEAD + STEP * figure.levels + 12
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" role="img">',
            f"<title>{escape(figure.title)}</title>",
            f"<desc>{escape(figure.desc)}</desc>",
            f"<style>\n{SHAPES}{_coloured(LIGHT)}@media (prefers-color-scheme: dark) {{\n{_coloured(DARK)}}}\n</style>",
            '<defs><marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" orient="auto"><path class="tip" d="M0,0 8,4 0,8z"/></marker>',
            '<marker id="cross" viewBox="0 0 8 8" refX="12" refY="4" markerWidth="9" markerHeight="9"><path class="cross" d="M0,0 8,8M8,0 0,8"/></marker></defs>',
            f'<rect class="paper" width="{width}" height="{height}" rx="6"/>',
            *_lives(figure, height),
            *_lanes(figure),
            *_rows(figure),
            "</svg>\n",
        ]
    )


def _coloured(palette: dict[str, str]) -> str:
    return re.sub(r"\b[A-Z]+\b", lambda name: palette[name[0]], COLOURS)


def _x(figure: Figure, lane: str) -> int:
    return MARGIN + LANE * figure.lanes.index(lane)


def _y(level: int) -> int:
    return HEAD + STEP * level + 24


def _lanes(figure: Figure) -> Iterator[str]:
    for lane in figure.lanes:
        yield f'<rect class="lane" x="{_x(figure, lane) - 68}" y="10" width="136" height="26" rx="4"/>'
        yield f'<text x="{_x(figure, lane)}" y="27">{escape(lane)}</text>'


def _lives(figure: Figure, height: int) -> Iterator[str]:
    """The vertical lines: thin, and from a line `old` or `new` on in its colour."""
    for lane in figure.lanes:
        turns = [
            (_y(level), kind)
            for level, kind, where, _, _ in figure.rows
            if where == lane and kind in ("old", "new")
        ]
        for (start, kind), (end, _) in zip([(36, "life"), *turns], [*turns, (height - 8, "")], strict=True):
            yield f'<path class="{kind}" d="M{_x(figure, lane)},{start}V{end}"/>'


def _rows(figure: Figure) -> Iterator[str]:
    width = figure.width
    for level, kind, first, second, words in figure.rows:
        y = _y(level)
        if kind == "heading":
            yield f'<path class="rule" d="M12,{y - 4}H{width - 12}"/>'
            yield f'<text class="heading halo" x="{width // 2}" y="{y}">{escape(words)}</text>'
        elif kind in ("note", "old", "new"):
            yield from _box(kind, _x(figure, first), y, width, words)
        else:
            start, end = _x(figure, first), _x(figure, second)
            yield f'<path class="{kind}" d="M{start},{y}H{end}"/>'
            yield f'<text class="halo" x="{(start + end) // 2}" y="{y - 6}">{escape(words)}</text>'


def _box(kind: str, x: int, y: int, width: int, words: str) -> Iterator[str]:
    """Around its words, moved inwards where it would leave the paper."""
    half = round(len(words) * LETTER / 2) + 8
    x = min(max(x, half + 6), width - half - 6)
    yield f'<rect class="{"note" if kind == "note" else "box"}" x="{x - half}" y="{y - 16}" width="{2 * half}" height="24" rx="4"/>'
    yield f'<text x="{x}" y="{y}">{escape(words)}</text>'


def too_long(text: str) -> list[str]:
    """Words that would leave the paper, or a message that is much longer than its arrow."""
    figure = parsed(text)
    found = []
    for _, kind, first, second, words in figure.rows:
        free = figure.width - 24
        if kind.startswith("message"):
            middle = (_x(figure, first) + _x(figure, second)) / 2
            free = round(2 * min(middle, figure.width - middle)) - 8
        if len(words) * LETTER > free:
            found.append(words)
    return found
