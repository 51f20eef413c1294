"""What a node offers of batch and mid resources, as sums on a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from koordinator.api.resource_names import BATCH_MEMORY, MID_MEMORY
from koordinator.cli.explain_table import escape, print_table, print_text

_MEMORIES: Final = frozenset({BATCH_MEMORY, MID_MEMORY})
_MEBI: Final = 1 << 20


def print_offer(offer: Mapping[str, Any], console: Console) -> None:
    """Write each sum, its addends one below the other."""
    if "error" in offer:
        console.print()
        print_text(console, f"Why batch and mid capacity is what it is: {escape(offer['error'])}")
        return
    _print_abnormal(offer, console)
    for text in offer["problems"]:
        print_text(console, f"not usable: {escape(text)}")
    amounts = offer["amounts"]
    given = [each for each in amounts if not each.get("reset")]
    if given:
        reported = next((each["metricTime"] for each in given if each.get("metricTime")), "")
        at = f", from the report of {escape(reported)}" if reported else ""
        title = f"Why batch and mid capacity is what it is{at}"
        print_table(console, title, _sums(given))
    for each in amounts:
        if each.get("reset"):
            print_text(console, escape(each["sentence"]), indent=2)
    zones = offer.get("zones", ())
    for name in dict.fromkeys(each["zone"] for each in zones):
        print_table(console, f"Zone {escape(name)}", _sums([each for each in zones if each["zone"] == name]))


def _sums(given: Sequence[Mapping[str, Any]]) -> Table:
    """A column for each resource: addends, what they come to, what that becomes, and what it all was made from."""
    table = Table("", *(escape(each["resource"].rpartition("/")[2]) for each in given))
    for name in _names(given, "addends"):
        table.add_row(escape(_words(name)), *(_part(each, "addends", name) for each in given))
    if any("cap" in each for each in given):
        table.add_row("at most", *(_shown(each, each["cap"]) if "cap" in each else "" for each in given))
    table.add_row("= offered", *(_shown(each, each["value"]) for each in given), style="bold")
    for name in _names(given, "adjustments"):
        table.add_row(escape(_words(name)), *(_part(each, "adjustments", name) for each in given))
    table.add_row("policy", *(escape(each.get("policy", "")) for each in given))
    for name in dict.fromkeys(name for each in given for name in each.get("terms", {})):
        terms = [_term(each, name) for each in given]
        if any(terms):
            cells = ("" if term is None else _shown(each, term) for each, term in zip(given, terms, strict=True))
            table.add_row(f"({escape(_words(name))})", *cells)
    return table


def _term(amount: Mapping[str, Any], name: str) -> int | None:
    """What goes into the addends; None for what is one of them, which stands above already."""
    if any(part["name"] == name for part in amount["addends"]):
        return None
    found: int | None = amount.get("terms", {}).get(name)
    return found


def _names(given: Sequence[Mapping[str, Any]], kind: str) -> list[str]:
    return list(dict.fromkeys(part["name"] for each in given for part in each[kind]))


def _print_abnormal(offer: Mapping[str, Any], console: Console) -> None:
    for number, found in enumerate(offer["abnormal"]):
        since = f" since {escape(offer['abnormalSince'])}" if not number and "abnormalSince" in offer else ""
        if not number:
            console.print()
        print_text(console, f"abnormal{since}: {escape(found['message'])} ({escape(found['reason'])})")
    if "soundSince" in offer:
        text = f"reports are sound since {escape(offer['soundSince'])}: the node is normal again when that has lasted"
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
