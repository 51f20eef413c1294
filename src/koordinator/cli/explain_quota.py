"""The explanation of an elastic quota on a terminal."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from koordinator.api.explanations import UNLIMITED, QuotaExplanation, QuotaPods
from koordinator.api.usable_amounts import limit_text
from koordinator.cli.explain_terminal import escape, print_list, print_table, print_text


def print_quota(document: QuotaExplanation, console: Console) -> None:
    """Write it, the result first."""
    pods, parents = document.pods or QuotaPods(), document.parents
    print_text(console, f"[bold]{escape(document.quota)}[/bold]  {_result(document)}")
    if parents:
        print_text(console, f"below {escape(' below '.join(parents))}", indent=2)
    print_text(console, f"{pods.assigned} pods have a node, {pods.waiting} wait", indent=2)
    for fault in document.faults:
        print_text(console, escape(fault), indent=2)
    _print_resources(document, console)
    _print_siblings(document, console)
    print_list(
        console,
        "Waiting, the most important first:",
        [f"{each.pod} ({each.request}): {each.reason or 'would be admitted'}" for each in document.waiting],
    )


def _result(document: QuotaExplanation) -> str:
    if document.next:
        return f"admits {escape(document.next)} next"
    return "admits none of the pods that wait" if document.pods and document.pods.waiting else "no pod waits"


def _print_resources(document: QuotaExplanation, console: Console) -> None:
    table = Table("resource", "min", "max", "request", "used", "runtime", "free")
    for each in document.resources:
        amounts = (each.min, each.max, each.request, each.used, each.runtime, each.free)
        table.add_row(escape(each.name), *(escape(_amount(each.name, amount)) for amount in amounts))
    print_table(console, "", table)
    print_list(
        console,
        "Where runtime, what it may use at present, comes from:",
        [f"{each.name}: {_amount(each.name, each.runtime)} is {each.why}" for each in document.resources],
    )


def _amount(resource: str, amount: str) -> str:
    return "no limit" if amount == UNLIMITED else limit_text(resource, amount)


def _print_siblings(document: QuotaExplanation, console: Console) -> None:
    lines = []
    for each in document.siblings:
        parts = [f"lends {each.lends}"] if each.lends else []
        parts += [f"uses up to {each.borrows} beyond its min"] if each.borrows else []
        if parts:
            lines.append(f"{each.quota} {' and '.join(parts)}")
    print_list(console, "Who shares with it:", lines)
