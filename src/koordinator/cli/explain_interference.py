"""The interference on a node on a terminal: who suffers, from what and from whom, and what was done about it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from koordinator.api.explanations import InterferenceExplanation
from koordinator.api.meta import EXTENSIONS_MEMBER
from koordinator.api.nodemetric import (
    INTERFERENCE,
    INTERFERENCE_REMEDIES,
    NETWORK_DELAY,
    PACKET_DROPS,
    TCP_RETRANSMITS,
)
from koordinator.cli.explain_terminal import escape, print_table, print_text

_WHAT: Mapping[str, str] = {
    "cpi": "needs more cycles for each instruction than it normally does",
    "cpu-pressure": "waits for CPUs",
    "cpu-wait": "waits for CPUs",
    "memory-pressure": "waits for memory",
    "io-pressure": "waits for block I/O",
    TCP_RETRANSMITS: "has to send again what was lost on the network",
    PACKET_DROPS: "loses packets at its network devices",
    NETWORK_DELAY: "waits in the queues of the network",
}
_UNITS: Mapping[str, str] = {
    "cpi": "",
    TCP_RETRANSMITS: " % of the segments",
    PACKET_DROPS: " % of the packets",
    NETWORK_DELAY: " ms",
}
_RESULTS: Mapping[str, str] = {
    "trying": "is in force, and will be measured",
    "helps": "helps",
    "tooLittle": "brought too little, and was undone",
    "notMeasured": "could not be measured, and was undone",
    "notPossible": "is not possible",
    "released": "helped, and was taken back",
}
_ADVICE: Mapping[str, str] = {
    "suppress": "suppress it: a batch pod can be held down",
    "pin": "give it CPUs of its own (QoS class LSR)",
    "migrate": "move it to another node",
}


def interference_document(name: str, metric: Mapping[str, Any]) -> InterferenceExplanation:
    """Of a node, what koordlet has written into its NodeMetric."""
    status = metric.get("status") or {}
    pods = status.get("podsMetric") or ()

    def reported(key: str) -> list[dict[str, Any]]:
        return [
            {"pod": f"{pod.get('namespace', '')}/{pod.get('name', '')}", "qos": pod.get("qos", ""), **each}
            for pod in pods
            for each in ((pod.get("extensions") or {}).get(EXTENSIONS_MEMBER) or {}).get(key) or ()
        ]

    return InterferenceExplanation(
        interference=name,
        reported=status.get("updateTime") or "",
        pods=len(pods),
        victims=reported(INTERFERENCE),
        remedies=reported(INTERFERENCE_REMEDIES),
    )


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
        _print_remedies(document.remedies, console)
        return
    count = f"{len(victims)} finding{'' if len(victims) == 1 else 's'}"
    print_text(console, f"[bold]{name}[/bold]  {count}, reported at {escape(document.reported)}")
    for victim in victims:
        _print_victim(victim, console)
    _print_remedies(document.remedies, console)


def _print_victim(victim: Mapping[str, Any], console: Console) -> None:
    indicator = str(victim["indicator"])
    unit = _UNITS.get(indicator, " % of the time")
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


def _print_remedies(remedies: Sequence[Mapping[str, Any]], console: Console) -> None:
    """In the order in which they were tried; a victim may have several suspects."""
    if not remedies:
        return
    table = Table("since", "suspect", "for", "remedy", "before", "with it", "result")
    for each in sorted(remedies, key=lambda each: str(each["since"])):
        what = f"{each['remedy']}: {each['what']}"
        cells = (each["since"], each["suspect"], f"{each['pod']} ({each['indicator']})", what)
        result = _RESULTS.get(each["result"], each["result"])
        table.add_row(*map(escape, cells), str(each["before"]), str(each.get("after", "")), escape(result))
    console.print()
    print_table(console, "What was done about it", table)
