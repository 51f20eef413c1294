"""What koord-descheduler would do now, on a terminal."""

from __future__ import annotations

from typing import Final

from rich.console import Console
from rich.table import Table

from koordinator.api.rebalance_explanation import HotNode, RebalanceExplanation
from koordinator.cli.explain_terminal import escape, print_list, print_table, print_text

_SHOWN: Final = 50


def _hot_row(hot: HotNode) -> tuple[str, ...]:
    prod = "prod " if hot.pods == "prod" else ""
    return (
        hot.node,
        hot.pool,
        "\n".join(f"{prod}{name} {used:.2f}%" for name, used in hot.usage.items()),
        "\n".join(f"{most:.2f}%" for most in hot.thresholds.values()),
        f"{hot.cycles} of {hot.needed}",
        "pods may leave" if hot.confirmed else "it is watched",
    )


def print_rebalance(document: RebalanceExplanation, console: Console) -> None:
    """Write it, the result first."""
    evictions, profiles = document.evictions, escape(document.rebalance)
    count = f"{len(evictions)} pod{'' if len(evictions) == 1 else 's'}"
    where = f"{document.pods} pods on {document.nodes} nodes"
    print_text(console, f"[bold]{profiles}[/bold]  a cycle that began now would evict {count} of {where}")
    print_list(console, "What went wrong:", document.errors)
    if document.hot:
        table = Table("node", "pool", "uses", "threshold", "hot cycles", "then")
        for hot in document.hot:
            table.add_row(*map(escape, _hot_row(hot)))
        print_table(console, "Hot nodes", table)
    if evictions:
        table = Table("pod", "node", "plugin", "why")
        for planned in evictions[:_SHOWN]:
            table.add_row(*map(escape, (planned.pod, planned.node, planned.plugin, planned.reason)))
        print_table(console, "Who would leave", table)
        if len(evictions) > _SHOWN:
            print_text(console, f"and {len(evictions) - _SHOWN} more; -o json has all of them", indent=2)
    print_list(console, "What else it would do:", [f"{each.what}: {each.reason}" for each in document.others])
    print_list(console, "What the plugins say:", [f"{each.plugin}: {each.text}" for each in document.remarks])
    if document.stays:
        table = Table("pods", "why they stay", "for example")
        for staying in document.stays:
            table.add_row(str(staying.pods), escape(staying.why), escape(", ".join(staying.examples)))
        print_table(console, "Who would stay", table)
