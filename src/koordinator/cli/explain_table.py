"""Tables of explanations. Their titles are lines of their own: a table would break them at its width."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape
from rich.table import Table


def print_table(console: Console, title: str, table: Table) -> None:
    """Write it below its title, after an empty line."""
    console.print()
    if title:
        console.print(f"[italic]{escape(title)}[/italic]", highlight=False, soft_wrap=True)
    console.print(table)
