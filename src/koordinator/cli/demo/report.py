"""The report of a day, as text and as a picture."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from koordinator.api.priority import PriorityClass
from koordinator.api.resource_names import BATCH_CPU
from koordinator.base.errors import ConfigurationError
from koordinator.cli.demo.claim import Claim, clock
from koordinator.cli.demo.claims import batch_capacity_at, utilisation
from koordinator.cli.demo.day import FIRST_BATCH_HOUR
from koordinator.cli.demo.hot_node import HOT, HOT_PERCENT, HotNode
from koordinator.cli.demo.observation import Day, Explained, Mark
from koordinator.cli.demo.rush import rush_sentence


def print_report(day: Day, checked: Sequence[Claim], console: Console | None = None) -> None:
    """Write the report to the terminal."""
    console = console or Console()
    # A terminal's lines are broken between words; those of a file are not broken at all.
    wide = not console.is_terminal
    before, _ = utilisation(day, 4.0, FIRST_BATCH_HOUR)
    alone, together = utilisation(day, FIRST_BATCH_HOUR + 1, 21.0)
    console.print()
    console.print(f"[bold]A day on {len(day.capacity)} nodes, {sum(day.capacity.values()) // 1000} CPUs[/bold]")
    table = Table("CPU used, mean", "share of capacity", title_justify="left")
    table.add_row("before batch pods are offered (04:00–07:00)", f"{before:.1f} %")
    table.add_row("with batch pods (08:00–21:00)", f"[bold]{together:.1f} %[/bold]")
    table.add_row("  of which online pods and system", f"{alone:.1f} %")
    console.print(table)
    console.print(_by_class(day))
    console.print(
        f"{day.kept_off_hot_nodes} pods were placed while the load-aware filter kept them off at least one node.",
        soft_wrap=wide,
    )
    requested = sum(
        pod.requested.get("cpu", 0) for pod in day.pods.values() if pod.priority_class is PriorityClass.PROD
    )
    console.print(
        f"Online pods request {requested // 1000} CPUs and use few of them; koord-manager offered what they left idle, "
        f"{batch_capacity_at(day, min)} CPUs at their quietest and {batch_capacity_at(day, max)} at their busiest, to "
        "batch pods.",
        soft_wrap=wide,
    )
    for name, marks in day.marks.items():
        console.print(_set_aside(name, marks), soft_wrap=wide)
    _print_hot_node(day.hot_node, console)
    if sentence := rush_sentence(day.rush):
        console.print(escape(sentence), soft_wrap=wide)
    console.print("Nodes, their agents and usage are simulated; all else that decides is not.")
    if day.explained is not None:
        _print_explained(day.explained, console)
    console.print()
    _print_claims(checked, console)


def _print_claims(checked: Sequence[Claim], console: Console) -> None:
    rows: list[tuple[str, str]] = []
    for claim in checked:
        rows.append(("[green]✓[/green]" if claim.holds else "[red]✗[/red]", escape(claim.text)))
        if not claim.holds:
            what = {"expected": claim.expected, "seen": claim.seen, "try": "; ".join(claim.advice)}
            rows += [(" ", f"[bold]{name}:[/bold] {escape(text)}") for name, text in what.items()]
    if not console.is_terminal:
        for mark, text in rows:
            console.print(f"  {mark} {text}", soft_wrap=True)
        return
    # Long claims go on below their first word, not below their mark.
    table = Table.grid(padding=(0, 1, 0, 0))
    for mark, text in rows:
        table.add_row(" ", mark, text)
    console.print(table)


def _set_aside(name: str, marks: Sequence[Mark]) -> str:
    first = marks[0]
    back = next((mark.hour for mark in marks if not mark.reason), 24.0)
    return (
        f"{name} was marked as abnormal ({first.reason}) from {clock(first.hour)} to {clock(back)}: nothing that its "
        "agent said was counted with."
    )


def _print_hot_node(seen: HotNode, console: Console) -> None:
    before, after = seen.before(), seen.after()
    rows = [(before[0], "before", f"{before[1]} % used")]
    for move in seen.moves.values():
        went = f"moved to {move.target} as {move.replacement}" if move.target else f"its job: {move.phase}"
        rows.append((move.hour, move.pod, went))
    if after is not None:
        rows.append((after[0], "after", f"{after[1]} % used"))
    table = Table("when", f"{HOT}, hot above {HOT_PERCENT} % of its CPU", "what")
    for hour, who, what in sorted(rows):
        table.add_row(clock(hour), who, what)
    console.print(table)
    if seen.rebalance is not None:
        table = Table("pods that stayed then", "why", "for example")
        for each in seen.rebalance.stays:
            table.add_row(str(each.pods), escape(each.why), escape(each.examples[0]))
        console.print(table)


def _print_explained(explained: Explained, console: Console) -> None:
    wide = not console.is_terminal
    console.print()
    title = f"[bold]{explained.name} was pending all day[/bold]; koord explain pod {explained.name} said why:"
    console.print(title, soft_wrap=wide)
    console.print(f"  {escape(explained.message)}", highlight=False, soft_wrap=wide)
    console.print(f"  Closest is {escape(explained.closest)}", highlight=False, soft_wrap=wide)
    for sentence in explained.advice:
        console.print(f"  {escape(sentence)}", highlight=False, soft_wrap=wide)


def _by_class(day: Day) -> Table:
    table = Table("class", "pods", "placed", "nodes used", "requested over the day")
    for priority_class in PriorityClass:
        pods = [pod for pod in day.pods.values() if pod.priority_class is priority_class]
        if not pods:
            continue
        nodes = [pod.node for pod in pods if pod.node]
        cpu = sum(p.requested.get("cpu", 0) + p.requested.get(BATCH_CPU, 0) for p in pods) / 1000
        table.add_row(priority_class.value, str(len(pods)), str(len(nodes)), str(len(set(nodes))), f"{cpu:.0f} CPUs")
    return table


# The report as a picture: an SVG that needs no fonts from anywhere.


_WIDTH: Final = 118
"""Columns."""
_TEMPLATE: Final = """\
<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<!-- Written by make picture, from a real run. -->
<style>
.{unique_id}-matrix {{
  font-family: ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, "Liberation Mono", monospace;
  font-size: {char_height}px; line-height: {line_height}px; font-variant-east-asian: full-width;
}}
.{unique_id}-title {{ font-size: 18px; font-weight: bold; font-family: sans-serif; }}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}"/>
</clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""


def save_picture(day: Day, checked: Sequence[Claim], path: Path) -> None:
    """Write it. Raises ConfigurationError where that is not possible."""
    console = Console(record=True, width=_WIDTH, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    print_report(day, checked, console)
    text = console.export_svg(title="koord demo", code_format=_TEMPLATE, unique_id="koord-demo")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(line.rstrip() for line in text.splitlines()) + "\n")
    except OSError as error:
        raise ConfigurationError("--svg", str(path), f"it cannot be written: {error.strerror}") from error
