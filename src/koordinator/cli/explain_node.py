"""The explanation of a node on a terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table


def print_node(document: Mapping[str, Any], console: Console) -> None:
    """Write it, the verdict first."""
    pods = document["pods"]
    console.print(f"[bold]{escape(document['node'])}[/bold]  {_verdict(document)}", highlight=False)
    if document["cordoned"]:
        console.print("  cordoned (spec.unschedulable): takes only pods that tolerate that", highlight=False)
    for taint in document["taints"]:
        console.print(f"  taint {escape(taint)}", highlight=False)
    for condition in document["conditions"]:
        console.print(f"  condition {escape(condition)}", highlight=False)
    console.print(f"  {pods['running']} pods of at most {pods['limit']}", highlight=False)
    if nominated := document["nominatedPods"]:
        console.print(f"  room is promised to {escape(', '.join(nominated))}", highlight=False)
    _print_resources(document, console)
    for plugin, facts in document["plugins"].items():
        if "usage" in facts:
            _print_load(plugin, facts, console)
        elif facts.get("reported") is False:
            console.print(f"\n{escape(plugin)}: the node has not reported its usage", highlight=False)
    _print_ruled_out(document, console)


def _verdict(document: Mapping[str, Any]) -> str:
    asked = document["asked"]
    if not asked["pods"]:
        return "no pod waits or was placed lately that could be asked about"
    return (
        f"would take {asked['wouldTake']} of the {asked['pods']} pods ({asked['kinds']} kinds) that wait or were "
        f"placed last; {document['placedLately']} of them came here"
    )


def _print_resources(document: Mapping[str, Any], console: Console) -> None:
    table = Table("resource", "allocatable", "requested", "free", "requested %")
    for resource in document["resources"]:
        percent = resource["requestedPercent"]
        table.add_row(
            escape(resource["name"]),
            resource["allocatable"],
            resource["requested"],
            resource["free"],
            "" if percent is None else f"{percent:g}",
        )
    console.print()
    console.print(table)


def _print_load(plugin: str, facts: Mapping[str, Any], console: Console) -> None:
    age = f", reported at {facts['reportedAt'][:19]}Z" if "reportedAt" in facts else ""
    title = f"{plugin}{age}{' (expired)' if facts['expired'] else ''}"
    table = Table(
        "resource", "measured", "not measured yet", "expected", "expected %", "threshold %",
        title=title, title_justify="left",
    )  # fmt: skip
    for usage in facts["usage"]:
        limits = [str(usage["threshold"] or "none")]
        limits += [f"{name} {usage[key]}" for key, name in _OTHER_LIMITS.items() if usage[key]]
        table.add_row(
            usage["name"],
            usage["measured"],
            usage["notMeasuredYet"],
            usage["expected"],
            f"{usage['expectedPercent']:g}",
            ", ".join(limits),
        )
    console.print()
    console.print(table)


_OTHER_LIMITS = {"prodThreshold": "prod", "aggregatedThreshold": "aggregated"}


def _print_ruled_out(document: Mapping[str, Any], console: Console) -> None:
    if not document["ruledOutBy"]:
        return
    table = Table("pods", "kept off by", "because", "for example", title="Pods that it does not take, as of now")
    table.title_justify = "left"
    for entry in document["ruledOutBy"]:
        table.add_row(
            str(entry["pods"]),
            escape(entry["plugin"]),
            escape("\n".join(entry["details"] or entry["reasons"])),
            escape(", ".join(entry["examples"])),
        )
    console.print()
    console.print(table)
