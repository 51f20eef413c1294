"""What a node offers of batch and mid resources, as sums on a terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from koordinator.api.resource_names import BATCH_MEMORY, MID_MEMORY
from koordinator.cli.explain_table import print_table

_MEMORIES: Final = frozenset({BATCH_MEMORY, MID_MEMORY})
_MEBI: Final = 1 << 20


def print_offer(offer: Mapping[str, Any], console: Console) -> None:
    """Write each sum, its addends one below the other."""
    if "error" in offer:
        console.print(f"\nWhy batch and mid capacity is what it is: {escape(offer['error'])}", highlight=False)
        return
    for text in offer["abnormal"]:
        console.print(f"\nabnormal: {escape(text)}", highlight=False)
    for text in offer["problems"]:
        console.print(f"not usable: {escape(text)}", highlight=False)
    amounts = [each for each in offer["amounts"] if not each.get("zone")]
    given = [each for each in amounts if not each.get("reset")]
    if given:
        table = Table("", *(escape(each["resource"].rpartition("/")[2]) for each in given))
        for name in dict.fromkeys(part["name"] for each in given for part in each["addends"]):
            table.add_row(escape(_words(name)), *(_part(each, "addends", name) for each in given))
        if any("cap" in each for each in given):
            table.add_row("at most", *(_shown(each, each["cap"]) if "cap" in each else "" for each in given))
        table.add_row("= offered", *(_shown(each, each["value"]) for each in given), style="bold")
        for name in dict.fromkeys(part["name"] for each in given for part in each["adjustments"]):
            table.add_row(escape(_words(name)), *(_part(each, "adjustments", name) for each in given))
        reported = next((each["metricTime"] for each in given if each.get("metricTime")), "")
        at = f", from the report of {escape(reported)}" if reported else ""
        print_table(console, f"Why batch and mid capacity is what it is{at} (CPU in milli-CPU, memory in MiB)", table)
    for each in amounts:
        if each.get("reset"):
            console.print(f"  {escape(each['sentence'])}", highlight=False)


def _part(amount: Mapping[str, Any], kind: str, name: str) -> str:
    found = next((part["amount"] for part in amount[kind] if part["name"] == name), None)
    return "" if found is None else _shown(amount, found, signed=True)


def _shown(amount: Mapping[str, Any], value: int, *, signed: bool = False) -> str:
    shown = value / _MEBI if amount["resource"] in _MEMORIES else value
    return f"{shown:+,.0f}" if signed else f"{shown:,.0f}"


def _words(name: str) -> str:
    """``systemUsage`` as words."""
    return "".join(f" {letter.lower()}" if letter.isupper() else letter for letter in name)
