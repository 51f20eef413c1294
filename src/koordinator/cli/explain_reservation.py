"""The explanation of a Reservation on a terminal."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from koordinator.api.explanations import ReservationExplanation
from koordinator.cli.explain_terminal import escape, print_list, print_table, print_text


def print_reservation(document: ReservationExplanation, console: Console) -> None:
    """Write it, the result first."""
    where = f" on {escape(document.node)}" if document.node else ""
    print_text(console, f"[bold]{escape(document.reservation)}[/bold]  {escape(document.phase or '')}{where}")
    for line in (*document.faults, document.message):
        if line:
            print_text(console, escape(line), indent=2)
    print_text(console, escape(_terms(document)), indent=2)
    print_list(console, "It belongs to:", document.owners)
    _print_resources(document, console)
    print_list(console, "Who uses it:", [f"{each.pod} ({each.uses})" for each in document.users])
    print_list(
        console,
        "Owners that wait for a node:",
        [f"{each.pod} ({each.request}): {each.reason or 'would use it'}" for each in document.waiting],
    )
    if left := document.waiting_left_out:
        print_text(console, f"and {left} more", indent=2)


def _terms(document: ReservationExplanation) -> str:
    once = "its first owner uses it up" if document.allocate_once else "owners share it"
    policy = f", policy {document.allocate_policy}" if document.allocate_policy else ""
    return f"{once}{policy}"


def _print_resources(document: ReservationExplanation, console: Console) -> None:
    if not document.resources:
        return
    table = Table("resource", "allocatable", "allocated", "left")
    for each in document.resources:
        table.add_row(*map(escape, (each.name, each.allocatable, each.allocated, each.left)))
    print_table(console, "", table)
