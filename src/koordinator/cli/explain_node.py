"""The explanation of a node on a terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table

from koordinator.cli.explain_offer import print_offer
from koordinator.cli.explain_table import escape, print_table, print_text


def print_node(document: Mapping[str, Any], console: Console) -> None:
    """Write it, the result first."""
    pods = document["pods"]
    print_text(console, f"[bold]{escape(document['node'])}[/bold]  {_verdict(document)}")
    if document["cordoned"]:
        print_text(console, "cordoned (spec.unschedulable): takes only pods that tolerate that", indent=2)
    for taint in document["taints"]:
        print_text(console, f"taint {escape(taint)}", indent=2)
    for condition in document["conditions"]:
        print_text(console, f"condition {escape(condition)}", indent=2)
    print_text(console, f"{pods['running']} of at most {pods['limit']} pods", indent=2)
    if nominated := document["nominatedPods"]:
        print_text(console, f"room is promised to {escape(', '.join(nominated))}", indent=2)
    if reason := document.get("notUpToDate"):
        print_text(console, f"what follows may be old: {escape(reason)}", indent=2)
    _print_resources(document, console)
    for plugin, facts in document["plugins"].items():
        if "usage" in facts:
            _print_load(plugin, facts, console)
        elif facts.get("reported") is False:
            _print_apart(console, f"{escape(plugin)}: the node has not reported its usage")
        elif "error" in facts:
            _print_apart(console, f"{escape(plugin)} cannot be asked: {escape(facts['error'])}")
    _print_rejected(document, console)
    if "offer" in document:
        print_offer(document["offer"], console)


def _print_apart(console: Console, markup: str) -> None:
    console.print()
    print_text(console, markup)


def _verdict(document: Mapping[str, Any]) -> str:
    asked, lately = document["asked"], document["placedLately"]
    came = f"; {lately} came here lately" if lately else ""
    if not asked["pods"]:
        return f"no pod waits or was placed elsewhere lately that could be asked about{came}"
    took = asked["wouldTake"]
    if asked["pods"] == 1:
        return f"would {'' if took else 'not '}take the one pod that waits or was placed elsewhere lately{came}"
    count = "none" if not took else "all" if took == asked["pods"] else str(took)
    return f"would take {count} of the {asked['pods']} pods that wait or were placed elsewhere lately{came}"


def _print_resources(document: Mapping[str, Any], console: Console) -> None:
    table = Table("resource", "allocatable", "requested", "free", "share")
    for resource in document["resources"]:
        percent = resource["requestedPercent"]
        table.add_row(
            escape(resource["name"]),
            resource["allocatable"],
            resource["requested"],
            resource["free"],
            "" if percent is None else f"{percent:g} %",
        )
    print_table(console, "", table)


def _print_load(plugin: str, facts: Mapping[str, Any], console: Console) -> None:
    age = f", reported at {facts['reportedAt'][:19]}Z" if "reportedAt" in facts else ""
    title = f"Load, as {plugin} sees it{age}{': too old to be believed' if facts['expired'] else ''}"
    table = Table("resource", "measured", "not measured yet", "expected", "share", "threshold")
    for usage in facts["usage"]:
        limits = [f"{usage['threshold']} %" if usage["threshold"] else "none"]
        limits += [f"{name} {usage[key]} %" for key, name in _OTHER_LIMITS.items() if usage[key]]
        table.add_row(
            usage["name"],
            usage["measured"],
            usage["notMeasuredYet"],
            usage["expected"],
            f"{usage['expectedPercent']:g} %",
            ", ".join(limits),
        )
    print_table(console, title, table)


_OTHER_LIMITS = {"prodThreshold": "prod", "aggregatedThreshold": "aggregated"}


def _print_rejected(document: Mapping[str, Any], console: Console) -> None:
    if not document["ruledOutBy"]:
        return
    table = Table("pods", "kept off by", "because", "for example")
    for entry in document["ruledOutBy"]:
        table.add_row(
            str(entry["pods"]),
            escape(entry["plugin"]),
            escape("\n".join(entry["details"] or entry["reasons"])),
            escape(", ".join(entry["examples"])),
        )
    print_table(console, "Pods that it does not take, as of now", table)
