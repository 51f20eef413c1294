"""The explanation of a gang on a terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table

from koordinator.cli.explain_terminal import escape, print_list, print_table, print_text


def print_gang(document: Mapping[str, Any], console: Console) -> None:
    """Write it, the result first."""
    print_text(console, f"[bold]{escape(document['gang'])}[/bold]  {escape(document['state'])}")
    print_text(console, escape(_declared(document)), indent=2)
    for problem in document["problems"]:
        print_text(console, escape(problem), indent=2)
    if document["finished"]:
        counts = ", ".join(f"{count} {phase}" for phase, count in document["finished"].items())
        print_text(console, escape(f"members that have finished: {counts}"), indent=2)
    print_list(console, "It waits:", document["waitsFor"])
    if network := document.get("network"):
        _print_network(network, console)
    if document["group"]:
        _print_group(document["group"], console)
    _print_members(document, console)


def _print_network(network: Mapping[str, Any], console: Console) -> None:
    print_list(console, "Its place in the network:", network["sentences"])
    if network["domainSlots"]:
        table = Table("domain", "has room for", "of")
        for slots in network["domainSlots"]:
            table.add_row(escape(slots["domain"]), str(slots["slots"]), str(network["wanted"]))
        more = f", and {network['moreDomains']} more" if network["moreDomains"] else ""
        print_table(console, f"The domains with the most free slots{more}:", table)


def _declared(document: Mapping[str, Any]) -> str:
    if document["minMember"] is None:
        return "declared by nobody so far"
    return (
        f"declared by {_source(document)}: {document['minMember']} members together, {document['mode']}, "
        f"{document['matchPolicy']}, waits {document['waitSeconds']:g} s at most"
    )


def _source(document: Mapping[str, Any]) -> str:
    return f"its {document['declaredBy']}" if document["declaredBy"] == "PodGroup" else str(document["declaredBy"])


def _print_group(group: list[Mapping[str, Any]], console: Console) -> None:
    columns = ("gang", "minMember", "pending", "waiting", "binding", "bound")
    table = Table("gang", "needs", "pending", "waiting", "binding", "bound")
    for each in group:
        cells = [each[column] for column in columns] if each["exists"] else [each["gang"], "does not exist"]
        table.add_row(*("?" if cell is None else escape(str(cell)) for cell in cells))
    title = "The gangs that are placed together:" if len(group) > 1 else "Its members:"
    print_table(console, title, table)


def _print_members(document: Mapping[str, Any], console: Console) -> None:
    shown = document["waiting"]
    lines = [f"{each['pod']}{_on(each)}: {each['reason']}" for each in shown]
    left = document["members"]["pending"] + document["members"]["waiting"] - len(shown)
    print_list(console, "Members that are not bound:", [*lines, f"and {left} more"] if left > 0 else lines)


def _on(member: Mapping[str, Any]) -> str:
    return f" (for {member['node']})" if member["node"] else ""
