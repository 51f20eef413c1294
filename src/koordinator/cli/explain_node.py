"""The explanation of a node on a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from koordinator.api.resource_names import BATCH_MEMORY, MID_MEMORY
from koordinator.cli.explain_terminal import escape, print_table, print_text

# What a node offers of batch and mid resources, as sums on a terminal.


_MEMORIES: Final = frozenset({BATCH_MEMORY, MID_MEMORY})
_MEBI: Final = 1 << 20


def print_overcommit(overcommit: Mapping[str, Any], console: Console) -> None:
    """Write each sum, its terms one below the other."""
    if "error" in overcommit:
        console.print()
        print_text(console, f"Why batch and mid capacity is what it is: {escape(overcommit['error'])}")
        return
    _print_abnormal(overcommit, console)
    for text in overcommit["problems"]:
        print_text(console, f"not usable: {escape(text)}")
    amounts = overcommit["amounts"]
    given = [each for each in amounts if not each.get("reset")]
    if given:
        reported = next((each["metricTime"] for each in given if each.get("metricTime")), "")
        at = f", from the report of {escape(reported)}" if reported else ""
        title = f"Why batch and mid capacity is what it is{at}"
        print_table(console, title, _sums(given))
    for each in amounts:
        if each.get("reset"):
            print_text(console, escape(each["sentence"]), indent=2)
    zones = overcommit.get("zones", ())
    for name in dict.fromkeys(each["zone"] for each in zones):
        print_table(console, f"Zone {escape(name)}", _sums([each for each in zones if each["zone"] == name]))


def _sums(given: Sequence[Mapping[str, Any]]) -> Table:
    """A column for each resource: terms, what they come to, what that becomes, and what it all was made from."""
    table = Table("", *(escape(each["resource"].rpartition("/")[2]) for each in given))
    for name in _names(given, "terms"):
        table.add_row(escape(_words(name)), *(_part(each, "terms", name) for each in given))
    if any("cap" in each for each in given):
        table.add_row("at most", *(_shown(each, each["cap"]) if "cap" in each else "" for each in given))
    table.add_row("= allocatable", *(_shown(each, each["value"]) for each in given), style="bold")
    for name in _names(given, "adjustments"):
        table.add_row(escape(_words(name)), *(_part(each, "adjustments", name) for each in given))
    table.add_row("policy", *(escape(each.get("policy", "")) for each in given))
    for name in dict.fromkeys(name for each in given for name in each.get("inputs", {})):
        inputs = [_input(each, name) for each in given]
        if any(inputs):
            cells = ("" if found is None else _shown(each, found) for each, found in zip(given, inputs, strict=True))
            table.add_row(f"({escape(_words(name))})", *cells)
    return table


def _input(amount: Mapping[str, Any], name: str) -> int | None:
    """What goes into the terms; None for what is one of them, which stands above already."""
    if any(part["name"] == name for part in amount["terms"]):
        return None
    found: int | None = amount.get("inputs", {}).get(name)
    return found


def _names(given: Sequence[Mapping[str, Any]], kind: str) -> list[str]:
    return list(dict.fromkeys(part["name"] for each in given for part in each[kind]))


def _print_abnormal(overcommit: Mapping[str, Any], console: Console) -> None:
    for number, found in enumerate(overcommit["abnormal"]):
        since = f" since {escape(overcommit['abnormalSince'])}" if not number and "abnormalSince" in overcommit else ""
        if not number:
            console.print()
        print_text(console, f"abnormal{since}: {escape(found['message'])} ({escape(found['reason'])})")
    if "soundSince" in overcommit:
        text = (
            f"reports are sound since {escape(overcommit['soundSince'])}: the node is normal again when that has lasted"
        )
        print_text(console, text, indent=2)


def _part(amount: Mapping[str, Any], kind: str, name: str) -> str:
    found = next((part["amount"] for part in amount[kind] if part["name"] == name), None)
    return "" if found is None else _shown(amount, found, signed=True)


def _shown(amount: Mapping[str, Any], value: int, *, signed: bool = False) -> str:
    shown, unit = (value / _MEBI, "Mi") if amount["resource"] in _MEMORIES else (value, "m")
    return f"{shown:+,.0f}{unit}" if signed else f"{shown:,.0f}{unit}"


def _words(name: str) -> str:
    """``systemUsage`` as words."""
    return "".join(f" {letter.lower()}" if letter.isupper() else letter for letter in name)


def print_node(document: Mapping[str, Any], console: Console) -> None:
    """Write it, the result first."""
    pods = document["pods"]
    print_text(console, f"[bold]{escape(document['node'])}[/bold]  {_result(document)}")
    if document["cordoned"]:
        print_text(console, "cordoned (spec.unschedulable): takes only pods that tolerate that", indent=2)
    for taint in document["taints"]:
        print_text(console, f"taint {escape(taint)}", indent=2)
    for condition in document["conditions"]:
        print_text(console, f"condition {escape(condition)}", indent=2)
    print_text(console, f"{pods['running']} of at most {pods['limit']} pods", indent=2)
    if nominated := document["nominatedPods"]:
        print_text(console, f"nominated: {escape(', '.join(nominated))}", indent=2)
    if reason := document.get("notUpToDate"):
        print_text(console, f"what follows may be old: {escape(reason)}", indent=2)
    _print_resources(document, console)
    for plugin, facts in document["plugins"].items():
        for fault in facts.get("faults", ()):
            _print_apart(console, f"{escape(plugin)}: NodeMetric {escape(document['node'])}: {escape(fault)}")
        for each in facts.get("closedBy", ()):
            _print_apart(console, f"{escape(plugin)}: closed by pod {escape(each['pod'])}: {escape(each['reason'])}")
        if "usage" in facts:
            _print_load(plugin, facts, console)
        elif "devices" in facts:
            _print_devices(facts, console)
        elif facts.get("reported") is False:
            _print_apart(console, f"{escape(plugin)}: the node has not reported its usage")
        elif "error" in facts:
            _print_apart(console, f"{escape(plugin)} cannot be queried: {escape(facts['error'])}")
    _print_rejected(document, console)
    if "overcommit" in document:
        print_overcommit(document["overcommit"], console)


def _print_apart(console: Console, markup: str) -> None:
    console.print()
    print_text(console, markup)


def _result(document: Mapping[str, Any]) -> str:
    evaluated, lately = document["evaluated"], document["placedLately"]
    came = f"; {lately} came here lately" if lately else ""
    if not evaluated["pods"]:
        return f"no pod waits or was placed elsewhere lately that could be evaluated{came}"
    took = evaluated["wouldTake"]
    if evaluated["pods"] == 1:
        return f"would {'' if took else 'not '}take the one pod that waits or was placed elsewhere lately{came}"
    count = "none" if not took else "all" if took == evaluated["pods"] else str(took)
    return f"would take {count} of the {evaluated['pods']} pods that wait or were placed elsewhere lately{came}"


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


def _print_devices(facts: Mapping[str, Any], console: Console) -> None:
    table = Table("device", "free")
    for device in facts["devices"]:
        free = [
            f"{device['free'][name]} of {whole} {name.rpartition('/')[2]}" for name, whole in device["total"].items()
        ]
        table.add_row(f"{device['type']} {device['minor']}", escape(", ".join(free)))
    print_table(console, "Devices that work", table)
    if fault := facts.get("fault"):
        print_text(console, escape(fault), indent=2)


def _print_rejected(document: Mapping[str, Any], console: Console) -> None:
    if not document["rejectedBy"]:
        return
    table = Table("pods", "kept off by", "because", "for example")
    for entry in document["rejectedBy"]:
        table.add_row(
            str(entry["pods"]),
            escape(entry["plugin"]),
            escape("\n".join(entry["details"] or entry["reasons"])),
            escape(", ".join(entry["examples"])),
        )
    print_table(console, "Pods that it does not take, as of now", table)
