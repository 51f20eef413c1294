"""The interference on a node on a terminal: who suffers, from what, and who the suspects are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table

from koordinator.api.explanations import InterferenceExplanation
from koordinator.cli.explain_terminal import escape, print_table, print_text

_WHAT: Mapping[str, str] = {
    "cpi": "needs more cycles for each instruction than it normally does",
    "cpu-pressure": "waits for CPUs",
    "cpu-wait": "waits for CPUs",
    "memory-pressure": "waits for memory",
    "io-pressure": "waits for block I/O",
}
_ADVICE: Mapping[str, str] = {
    "suppress": "suppress it: a batch pod can be held down",
    "pin": "give it CPUs of its own (QoS class LSR)",
    "migrate": "move it to another node",
}


def print_interference(document: InterferenceExplanation, console: Console) -> None:
    """Write it, the result first."""
    victims, name = document.victims, escape(document.interference)
    if not victims:
        print_text(console, f"[bold]{name}[/bold]  no pod suffers from another, as far as is known")
        reported = document.reported or "never"
        print_text(
            console,
            f"{document.pods} pods, last report: {escape(reported)}. koordlet looks for interference where its "
            "feature gate InterferenceDetection is on; it sees most with PSICollector and CPICollector.",
            indent=2,
        )
        return
    count = f"{len(victims)} finding{'' if len(victims) == 1 else 's'}"
    print_text(console, f"[bold]{name}[/bold]  {count}, reported at {escape(document.reported)}")
    for victim in victims:
        _print_victim(victim, console)


def _print_victim(victim: Mapping[str, Any], console: Console) -> None:
    indicator = str(victim["indicator"])
    unit = "" if indicator == "cpi" else " % of the time"
    console.print()
    what = _WHAT.get(indicator, indicator)
    print_text(console, f"[bold]{escape(victim['pod'])}[/bold] ({escape(victim['qos'])}) {escape(what)}")
    figures = f"{victim['value']}{unit}, normally {victim['normal']} (limit {victim['limit']}), since {victim['since']}"
    print_text(console, escape(f"{indicator}: {figures}"), indent=2)
    if not victim["suspects"]:
        print_text(console, "No pod of the node explains it.", indent=2)
        return
    table = Table("suspect", "QoS", "correlation", "confidence", "advice")
    for each in victim["suspects"]:
        advice = _ADVICE.get(each["advice"], each["advice"])
        table.add_row(
            escape(each["pod"]), escape(each["qos"]), str(each["correlation"]), str(each["confidence"]), escape(advice)
        )
    print_table(console, "Who may be the reason", table)
