"""The drawings of the pages: what the programs say to each other, the life of a batch pod, and whose the CPUs of a
node are.

``python -m tests.docs.diagrams`` writes them to docs/images. Each paints its own background, light or dark as the
reader's system is, so that it can be read on any page.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Final

from tests.docs.pages import ROOT

FOLDER: Final = ROOT / "docs/images"
_LINE: Final = 17
_STYLE: Final = """\
svg{color-scheme:light dark;--page:#fff;--text:#1f2328;--line:#6e7781;--ours:#ddf4ff;--ours-line:#0969da}
svg{--theirs:#f6f8fa;--prod:#ffd8b5;--mid:#fff8c5;--batch:#c6f0d0;--none:#eaeef2}
@media(prefers-color-scheme:dark){
svg{--page:#0d1117;--text:#e6edf3;--line:#8b949e;--ours:#0c2d4b;--ours-line:#58a6ff}
svg{--theirs:#161b22;--prod:#5a3210;--mid:#4b3f0c;--batch:#12472a;--none:#21262d}}
text{font:13px system-ui,sans-serif;fill:var(--text)}.small{font-size:12px}.title{font-weight:600}
.page{fill:var(--page)}.ours{fill:var(--ours);stroke:var(--ours-line)}.theirs{fill:var(--theirs);stroke:var(--line)}
.arrow{stroke:var(--line);stroke-width:1.5;fill:none;marker-end:url(#head)}#head path{fill:var(--line)}
.prod{fill:var(--prod)}.mid{fill:var(--mid)}.batch{fill:var(--batch)}.none{fill:var(--none)}.share{stroke:var(--page)}
"""


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle with a title and lines below it; ``look`` is one of the classes of the style."""

    x: int
    y: int
    width: int
    title: str
    lines: Sequence[str] = ()
    look: str = "ours"

    @property
    def height(self) -> int:
        return 20 + _LINE * (1 + len(self.lines))

    def draw(self) -> Iterable[str]:
        yield (
            f'<rect class="{self.look}" x="{self.x}" y="{self.y}" width="{self.width}" height="{self.height}" rx="6"/>'
        )
        middle = self.x + self.width // 2
        yield _text(middle, self.y + 22, self.title, "title", "middle")
        for number, line in enumerate(self.lines, 1):
            yield _text(middle, self.y + 22 + _LINE * number, line, "small", "middle")


def _text(x: int, y: int, text: str, look: str = "small", anchor: str = "start") -> str:
    return f'<text class="{look}" x="{x}" y="{y}" text-anchor="{anchor}">{escape(text)}</text>'


def _arrow(*points: tuple[int, int]) -> str:
    return f'<polyline class="arrow" points="{" ".join(f"{x},{y}" for x, y in points)}"/>'


def _drawing(width: int, height: int, title: str, parts: Iterable[str]) -> str:
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'role="img" aria-label="{escape(title)}">'
    )
    marker = (
        '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" '
        'orient="auto-start-reverse"><path d="M0 0L8 4L0 8z"/></marker></defs>'
    )
    page = f'<rect class="page" width="{width}" height="{height}"/>'
    named = f"<title>{escape(title)}</title>"
    return "\n".join([head, named, f"<style>\n{_STYLE}</style>", marker, page, *parts, "</svg>\n"])


def architecture() -> str:
    boxes = (
        Box(40, 30, 200, "you", ("kubectl, koord, Helm",), "theirs"),
        Box(300, 30, 380, "Kubernetes API server", ("all state: pods, nodes, CRDs, ConfigMaps",), "theirs"),
        Box(40, 170, 200, "koord-manager", ("capacity, policies, webhooks",)),
        Box(270, 170, 190, "koord-scheduler", ("places pods",)),
        Box(500, 170, 220, "koord-descheduler", ("moves pods, empties nodes",)),
        Box(60, 330, 180, "koord-device-daemon", ("finds NPUs and the like",)),
        Box(290, 330, 200, "koordlet", ("measures, predicts, limits",)),
        Box(510, 330, 190, "koord-runtime-proxy", ("before containers start",)),
        Box(60, 430, 640, "kernel, kubelet, container runtime", ("cgroups, resctrl, /proc, CRI, NRI",), "theirs"),
    )
    parts = [
        '<rect class="none" x="30" y="285" width="690" height="220" rx="8"/>',
        _text(44, 308, "each node", "title"),
        *(line for box in boxes for line in box.draw()),
        _arrow((240, 58), (298, 58)),
        _arrow((140, 168), (140, 120), (330, 120), (330, 90)),
        _text(148, 148, "NodeSLO, batch-cpu"),
        _arrow((370, 168), (370, 90)),
        _text(378, 148, "bindings"),
        _arrow((610, 168), (610, 90)),
        _text(618, 148, "evictions, jobs"),
        _arrow((485, 328), (485, 90)),
        _text(492, 272, "NodeMetric: what is used"),
        _arrow((240, 358), (288, 358)),
        _arrow((508, 358), (492, 358)),
        _arrow((380, 386), (380, 428)),
    ]
    return _drawing(750, 520, "The programs, the API server between them, and a node", parts)


def pod_life() -> str:
    steps = (
        ("created", ("by a Job, say",), "theirs"),
        ("admitted", ("koord-manager: class,", "cpu becomes batch-cpu"), "ours"),
        ("queued", ("koord-scheduler: gates,", "gang, quota"), "ours"),
        ("placed", ("fits, the node is not hot,", "the best score"), "ours"),
        ("started", ("koordlet: cgroup, CPUs,", "devices, before it runs"), "ours"),
        ("runs", ("on what services leave",), "theirs"),
        ("held down", ("koordlet: services need", "the CPU; back in seconds"), "ours"),
        ("moved", ("koord-descheduler: the", "new place is reserved"), "ours"),
    )
    boxes = [
        Box(20 + 190 * (number % 4), 30 + 130 * (number // 4), 170, title, lines, look)
        for number, (title, lines, look) in enumerate(steps)
    ]
    arrows = [_arrow((x, 55), (x + 18, 55)) for x in (190, 380, 570)]
    arrows += [_arrow((675, 86), (675, 122), (105, 122), (105, 158))]
    arrows += [_arrow((x, 185), (x + 18, 185)) for x in (190, 380, 570)]
    arrows.append(_arrow((400, 205), (382, 205)))
    lines = [line for box in boxes for line in box.draw()]
    return _drawing(790, 250, "The life of a batch pod, and which program does what", [*arrows, *lines])


def resource_tiers() -> str:
    shares = (
        (130, "used by prod pods", "prod"),
        (150, "reserved, idle", "none"),
        (210, "not reserved, idle", "none"),
        (100, "the system", "none"),
        (120, "safety margin", "none"),
    )
    tiers = (
        ("prod", 20, 280, "prod, 9000: requested, and kept for it"),
        ("mid", 150, 120, "mid, 7000"),
        ("batch", 150, 360, "batch, 5000: what is idle now"),
    )
    parts, x = [_text(20, 28, "The CPUs of a node, and to whom koord-manager lends them", "title")], 20
    for width, title, look in shares:
        parts.append(f'<rect class="share {look}" x="{x}" y="44" width="{width}" height="44"/>')
        parts.append(_text(x + width // 2, 71, title, "small", "middle"))
        x += width
    for number, (look, start, width, title) in enumerate(tiers):
        y = 98 + 34 * number
        parts.append(f'<rect class="share {look}" x="{start}" y="{y}" width="{width}" height="28"/>')
        parts.append(_text(start + width // 2, y + 19, title, "small", "middle"))
    parts += [
        _text(282, 151, "what prod pods are predicted to leave for long"),
        _text(
            20,
            226,
            "When prod pods use more, batch capacity falls at the next report; batch pods are held down at once.",
        ),
    ]
    return _drawing(750, 246, "Whose the CPUs of a node are: prod, mid, batch, the system and the margin", parts)


DRAWINGS: Final[Mapping[str, Callable[[], str]]] = {
    "architecture.svg": architecture,
    "pod-life.svg": pod_life,
    "resource-tiers.svg": resource_tiers,
}


def main(folder: Path = FOLDER) -> None:
    for name, draw in DRAWINGS.items():
        (folder / name).write_text(draw())


if __name__ == "__main__":
    main()
