"""What the API says of a pod or a node, on a terminal: its state, the scheduler's last word on it, its events."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from koordinator.cli.explain_table import escape, print_table, print_text

_EVENTS_SHOWN: Final = 5


def print_state(api: Mapping[str, Any], console: Console) -> None:
    """The sentence, and what to do next."""
    print_text(console, f"[bold]{escape(api['sentence'])}[/bold]")
    if api.get("next"):
        print_text(console, escape(api["next"]), indent=2)


def print_api(api: Mapping[str, Any], console: Console) -> None:
    """All of it, for an object of which the scheduler says nothing."""
    print_state(api, console)
    if message := api.get("message"):
        print_text(console, escape(message), indent=2)
    for line in api.get("facts", ()):
        print_text(console, escape(line), indent=2)
    if events := api.get("events"):
        table = Table("last seen", "from", "reason", "message")
        for event in events[-_EVENTS_SHOWN:]:
            table.add_row(*(escape(event[key]) for key in ("time", "from", "reason", "message")))
        print_table(console, "Its last events", table)
