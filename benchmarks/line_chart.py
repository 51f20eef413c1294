"""Line charts as an SVG file, for the documentation: axes with ticks, lines or points, and a legend."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Final

_WIDTH: Final = 520
_HEIGHT: Final = 360
_LEFT: Final = 62
_RIGHT: Final = 16
_TOP: Final = 40
_BOTTOM: Final = 46
_TICKS: Final = 5
_LEGEND_LINE: Final = 16
_LABEL: Final = 30, 13
"""The room of a label beside a point: one that would stand in another is left out."""
_STEPS: Final = (1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10)
_STYLE: Final = (
    "text{font:12px sans-serif;fill:#24292f}.title{font-size:14px;font-weight:bold}.axis{stroke:#57606a}"
    ".grid{stroke:#d0d7de;stroke-width:.5}"
)


@dataclass(frozen=True, slots=True)
class Series:
    """``labels`` stand beside the points, where there are any and there is room; else it is a line alone."""

    name: str
    color: str
    points: Sequence[tuple[float, float]]
    labels: Sequence[str] = ()
    has_line: bool = True


@dataclass(frozen=True, slots=True)
class Chart:
    """Both axes begin at 0."""

    title: str
    across: str
    up: str
    series: Sequence[Series]


def write_svg(path: Path, charts: Sequence[Chart]) -> None:
    """Write the charts side by side."""
    width = _WIDTH * len(charts)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{_HEIGHT}" viewBox="0 0 {width} {_HEIGHT}">',
        f'<style>{_STYLE}</style><rect width="{width}" height="{_HEIGHT}" fill="#ffffff"/>',
    ]
    for number, chart in enumerate(charts):
        parts += [f'<g transform="translate({number * _WIDTH},0)">', *_chart(chart), "</g>"]
    path.write_text("\n".join([*parts, "</svg>", ""]))


def _chart(chart: Chart) -> list[str]:
    largest = [_round_up(max(point[axis] for each in chart.series for point in each.points)) for axis in (0, 1)]
    right, bottom = _WIDTH - _RIGHT, _HEIGHT - _BOTTOM

    def place(point: tuple[float, float]) -> tuple[float, float]:
        across, up = point[0] / largest[0], point[1] / largest[1]
        return round(_LEFT + across * (right - _LEFT), 1), round(bottom - up * (bottom - _TOP), 1)

    parts = [f'<text class="title" x="{_LEFT}" y="20">{escape(chart.title)}</text>']
    for tick in range(_TICKS + 1):
        x, y = place((largest[0] * tick / _TICKS, largest[1] * tick / _TICKS))
        parts += [
            f'<line class="grid" x1="{x}" y1="{_TOP}" x2="{x}" y2="{bottom}"/>',
            f'<line class="grid" x1="{_LEFT}" y1="{y}" x2="{right}" y2="{y}"/>',
            f'<text x="{x}" y="{bottom + 16}" text-anchor="middle">{largest[0] * tick / _TICKS:g}</text>',
            f'<text x="{_LEFT - 6}" y="{y + 4}" text-anchor="end">{largest[1] * tick / _TICKS:g}</text>',
        ]
    parts += [
        f'<path class="axis" fill="none" d="M{_LEFT} {_TOP}V{bottom}H{right}"/>',
        f'<text x="{(_LEFT + right) / 2}" y="{_HEIGHT - 10}" text-anchor="middle">{escape(chart.across)}</text>',
        f'<text transform="translate(14,{(_TOP + bottom) / 2}) rotate(-90)" text-anchor="middle">'
        f"{escape(chart.up)}</text>",
    ]
    for number, each in enumerate(chart.series):
        parts += _series(each, [place(point) for point in each.points])
        y = bottom - 12 - _LEGEND_LINE * (len(chart.series) - 1 - number)
        parts += [
            f'<rect x="{right - 190}" y="{y - 9}" width="10" height="10" fill="{each.color}"/>',
            f'<text x="{right - 174}" y="{y}">{escape(each.name)}</text>',
        ]
    return parts


def _series(series: Series, places: Sequence[tuple[float, float]]) -> list[str]:
    parts = []
    if series.has_line:
        line = " ".join(f"{x:g},{y:g}" for x, y in places)
        parts.append(f'<polyline fill="none" stroke="{series.color}" stroke-width="1.5" points="{line}"/>')
    labelled: list[tuple[float, float]] = []
    for (x, y), label in zip(places, series.labels, strict=bool(series.labels)):
        parts.append(f'<circle cx="{x}" cy="{y}" r="4" fill="{series.color}"/>')
        if all(abs(x - other) > _LABEL[0] or abs(y - above) > _LABEL[1] for other, above in labelled):
            labelled.append((x, y))
            parts.append(f'<text x="{x + 6:g}" y="{y + 16:g}" style="fill:{series.color}">{escape(label)}</text>')
    return parts


def _round_up(value: float) -> float:
    """To a number that divides well into ticks."""
    unit = 10.0 ** math.floor(math.log10(value / _TICKS)) if value > 0 else 1.0
    return next(unit * step * _TICKS for step in _STEPS if unit * step * _TICKS >= value)
