"""Tables, lists and sentences of explanations on a terminal of any width. Titles are lines of their own: a table would
break them at its width."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table

__all__ = ["escape", "print_lines", "print_list", "print_table", "print_text"]


def print_table(console: Console, title: str, table: Table) -> None:
    """Write it below its title, after an empty line. What does not fit into its column goes on in the next line: a
    name that is cut off cannot be looked up."""
    for column in table.columns:
        column.overflow = "fold"
    console.print()
    if title:
        console.print(f"[italic]{escape(title)}[/italic]")
    console.print(table)


def print_text(console: Console, markup: str, indent: int = 0) -> None:
    """A sentence, broken between words, its lines indented alike."""
    console.print(Padding(markup, (0, 0, 0, indent), expand=False))


def print_list(console: Console, title: str, lines: Sequence[str]) -> None:
    """Plain texts with a bullet each, after an empty line; nothing at all without any."""
    if lines:
        console.print(f"\n{escape(title)}")
        print_lines(console, lines)


def print_lines(console: Console, lines: Iterable[str]) -> None:
    """The bullets alone."""
    bullet = "*" if console.options.ascii_only else "•"
    for line in lines:
        table = Table.grid(padding=(0, 1))
        table.add_column(width=3, justify="right")
        table.add_column(overflow="fold")
        table.add_row(bullet, escape(line))
        console.print(table)
