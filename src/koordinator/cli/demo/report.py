"""The report of a day, and the claims that it stands on."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from koordinator.api.priority import PriorityClass
from koordinator.api.resource_names import BATCH_CPU
from koordinator.base.errors import ConfigurationError
from koordinator.cli.demo.day import CPU_THRESHOLD_PERCENT, FAULTY, FIRST_BATCH_HOUR, SAFE_PERCENT
from koordinator.cli.demo.hot_node import HOT, HOT_PERCENT, HotNode, availability_claim, cooling_claim, staying_claim
from koordinator.cli.demo.observation import Day, Explained, Mark, NodeUsage, PlacedPod
from koordinator.cli.demo.rush import rush_claim, rush_sentence
from koordinator.cli.demo.workloads import clock, gang_claim, quota_claim, reservation_claim

_LEAST_GAIN = 1.5
_OF_THE_NODE = ("cpu", "memory", "pods")
_LONGEST_HOURS = 1.0


@dataclass(frozen=True, slots=True)
class Claim:
    """One statement about the day, with the figure that decides it."""

    text: str
    holds: bool


def utilisation(day: Day, since: float, until: float = 24.0) -> tuple[float, float]:
    """Mean CPU use between two hours in percent of capacity: of online pods and system alone, and of everything."""
    capacity = sum(day.capacity.values())
    moments = [moment for moment in day.moments if since <= moment.hour < until and moment.nodes]
    if not moments or not capacity:
        return 0.0, 0.0
    total = sum(usage.used for moment in moments for usage in moment.nodes.values()) / len(moments)
    batch = sum(usage.batch for moment in moments for usage in moment.nodes.values()) / len(moments)
    return (total - batch) * 100 / capacity, total * 100 / capacity


def placed_on_hot_nodes(day: Day) -> list[PlacedPod]:
    """Batch pods that went to a node whose last two reports before the binding were both over the threshold."""
    history: dict[str, list[NodeUsage]] = {}
    for moment in day.moments:
        for name, usage in moment.nodes.items():
            reports = history.setdefault(name, [])
            if not reports or reports[-1].updated != usage.updated:
                reports.append(usage)
    wrong = []
    for pod in day.pods.values():
        if pod.priority_class is not PriorityClass.BATCH or pod.bound_at is None:
            continue
        before = [usage for usage in history.get(pod.node, []) if usage.updated < pod.bound_at][-2:]
        limit = day.capacity[pod.node] * CPU_THRESHOLD_PERCENT / 100
        if len(before) == 2 and all(usage.used > limit for usage in before):
            wrong.append(pod)
    return wrong


def overbooked(day: Day) -> list[str]:
    """Nodes on which pods were seen to request more than there is, with the resource. Batch resources do not count:
    what is offered of them shrinks under the pods that have them, as online load rises."""
    return sorted(
        f"{node} {resource}"
        for (node, resource), amount in day.most_requested.items()
        if resource in _OF_THE_NODE and amount > day.allocatable[node].get(resource, 0)
    )


def longest_above(day: Day, percent: int) -> float:
    """For how many hours at a stretch some node used more than this of its CPU."""
    longest = 0.0
    for node, capacity in day.capacity.items():
        since: float | None = None
        for moment in day.moments:
            usage = moment.nodes.get(node)
            if usage is None or usage.used * 100 <= capacity * percent:
                since = None
                continue
            since = moment.hour if since is None else since
            longest = max(longest, moment.hour - since)
    return longest


def batch_capacity_at(day: Day, online: Callable[[Iterable[tuple[int, int]]], tuple[int, int]]) -> int:
    """CPUs offered to batch pods while these ran and online pods used the least (``min``) or the most (``max``)."""
    hours = {reading.hour: reading.batch_cpu for reading in day.batch_capacity}
    seen = [
        (sum(usage.online for usage in moment.nodes.values()), hours[moment.hour])
        for moment in day.moments
        if moment.nodes and moment.hour >= FIRST_BATCH_HOUR and moment.hour in hours
    ]
    return online(seen)[1] // 1000 if seen else 0


def claims(day: Day) -> list[Claim]:
    """Everything that must hold for the demonstration to be one."""
    online = [pod for pod in day.pods.values() if pod.priority_class is PriorityClass.PROD]
    batch = [pod for pod in day.pods.values() if pod.priority_class is PriorityClass.BATCH]
    alone, together = utilisation(day, FIRST_BATCH_HOUR + 1, 21.0)
    hot, over = placed_on_hot_nodes(day), overbooked(day)
    quiet, busy, hurt = batch_capacity_at(day, min), batch_capacity_at(day, max), longest_above(day, SAFE_PERCENT)
    return [
        _all_placed("online", online),
        _all_placed("batch", batch),
        Claim(
            f"no node has more CPU, memory or pods requested than it can give ({', '.join(over) or 'none seen'})",
            not over and bool(day.most_requested),
        ),
        Claim(
            f"batch pods raise CPU use at least {_LEAST_GAIN:g} times ({alone:.0f} % to {together:.0f} %)",
            together >= alone * _LEAST_GAIN > 0,
        ),
        Claim(
            f"the load-aware filter kept pods off hot nodes ({day.kept_off_hot_nodes} pods)", day.kept_off_hot_nodes > 0
        ),
        Claim(
            f"no batch pod was sent to a node that had stayed above {CPU_THRESHOLD_PERCENT} % CPU ({len(hot)} were)",
            not hot,
        ),
        Claim(
            "the pod that no node can take says why, and its explanation, condition and event say the same",
            day.explained is not None and day.explained.agrees,
        ),
        Claim(
            f"koord-manager offered less to batch pods when online pods were busy ({quiet} CPUs at their quietest, "
            f"{busy} at their busiest)",
            0 < busy < quiet,
        ),
        Claim(
            f"online pods were not hurt: no node used more than {SAFE_PERCENT} % of its CPU for longer than "
            f"{_LONGEST_HOURS:g} h (the longest was {hurt:.1f} h)",
            hurt <= _LONGEST_HOURS and bool(day.moments),
        ),
        Claim(
            f"{FAULTY}, whose agent reported nonsense, and no other node was marked as abnormal, lent nothing to batch "
            "pods meanwhile and lends again",
            set(day.marks) == {FAULTY} and was_set_aside(day.marks[FAULTY]),
        ),
        Claim(*rush_claim(day.rush)),
        Claim(*gang_claim(day.workloads)),
        Claim(*quota_claim(day.workloads)),
        Claim(*reservation_claim(day.workloads)),
        Claim(*cooling_claim(day.hot_node)),
        Claim(*availability_claim(day.hot_node)),
        Claim(*staying_claim(day.hot_node)),
    ]


def was_set_aside(marks: Sequence[Mark]) -> bool:
    """Whether a node was abnormal, lent nothing while it was, and has been lending again since.

    It lends again a moment before the mark comes off, which the last look at the mark may have seen.
    """
    lent = [mark.batch_cpu for mark in marks if mark.reason]
    last = marks[-1]
    return bool(lent) and lent[0] == 0 and not any(lent[:-1]) and not last.reason and last.batch_cpu > 0


def _all_placed(what: str, pods: Sequence[PlacedPod]) -> Claim:
    placed = sum(1 for pod in pods if pod.node)
    return Claim(f"every {what} pod was placed ({placed} of {len(pods)})", bool(pods) and placed == len(pods))


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
    rows = [("[green]✓[/green]" if claim.holds else "[red]✗[/red]", escape(claim.text)) for claim in checked]
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
        for each in seen.rebalance["stays"]:
            table.add_row(str(each["pods"]), escape(each["why"]), escape(each["examples"][0]))
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
