"""The explanation of a gang on a terminal."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from koordinator.api.explanations import GangExplanation, GangMember, GangOfGroup, MemberCounts, NetworkPlace
from koordinator.cli.explain_terminal import escape, print_list, print_table, print_text


def print_gang(document: GangExplanation, console: Console) -> None:
    """Write it, the result first."""
    print_text(console, f"[bold]{escape(document.gang)}[/bold]  {escape(document.state)}")
    print_text(console, escape(_declared(document)), indent=2)
    if document.preemption:
        print_text(console, escape(document.preemption), indent=2)
    for problem in document.problems:
        print_text(console, escape(problem), indent=2)
    if document.finished:
        counts = ", ".join(f"{count} {phase}" for phase, count in document.finished.items())
        print_text(console, escape(f"members that have finished: {counts}"), indent=2)
    print_list(console, "It waits:", document.waits_for)
    if document.network is not None:
        _print_network(document.network, console)
    if document.group:
        _print_group(document.group, console)
    _print_members(document, console)


def _print_network(network: NetworkPlace, console: Console) -> None:
    print_list(console, "Its place in the network:", network.sentences)
    if network.domain_slots:
        table = Table("domain", "has room for", "of")
        for slots in network.domain_slots:
            table.add_row(escape(slots.domain), str(slots.slots), str(network.wanted))
        more = f", and {network.more_domains} more" if network.more_domains else ""
        print_table(console, f"The domains with the most free slots{more}:", table)


def _declared(document: GangExplanation) -> str:
    if document.min_member is None:
        return "declared by nobody so far"
    return (
        f"declared by {_source(document)}: {document.min_member} members together, {document.mode}, "
        f"{document.match_policy}, waits {document.wait_seconds:g} s at most"
    )


def _source(document: GangExplanation) -> str:
    return f"its {document.declared_by}" if document.declared_by == "PodGroup" else document.declared_by


def _print_group(group: list[GangOfGroup], console: Console) -> None:
    table = Table("gang", "needs", "pending", "waiting", "binding", "bound")
    for each in group:
        counts = (each.min_member, each.pending, each.waiting, each.binding, each.bound)
        cells = [each.gang, *(counts if each.exists else ("does not exist",))]
        table.add_row(*("?" if cell is None else escape(str(cell)) for cell in cells))
    title = "The gangs that are placed together:" if len(group) > 1 else "Its members:"
    print_table(console, title, table)


def _print_members(document: GangExplanation, console: Console) -> None:
    shown = document.waiting
    lines = [f"{each.pod}{_on(each)}: {each.reason}" for each in shown]
    members = document.members or MemberCounts()
    left = members.pending + members.waiting - len(shown)
    print_list(console, "Members that are not bound:", [*lines, f"and {left} more"] if left > 0 else lines)


def _on(member: GangMember) -> str:
    return f" (for {member.node})" if member.node else ""
