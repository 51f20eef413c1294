"""How far the day is: a bar on a terminal, a line every few hours in a log."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

Show = Callable[[float, str], None]
"""Called with the hour and a description of it, several times an hour."""
_HOURS: Final = 24.0
_LINE_EVERY: Final = 3


@contextmanager
def day_progress(console: Console) -> Iterator[Show]:
    """Show the progress of one day."""
    if console.is_terminal:
        columns = (TextColumn("{task.description}"), BarColumn(bar_width=40), TimeElapsedColumn())
        with Progress(*columns, console=console) as progress:
            bar = progress.add_task("midnight", total=_HOURS)
            yield lambda hour, text: progress.update(bar, completed=hour, description=text)
            progress.update(bar, completed=_HOURS)
        return
    shown = -1

    def show(hour: float, text: str) -> None:
        nonlocal shown
        if (part := int(hour) // _LINE_EVERY) > shown:
            shown = part
            console.print(text, highlight=False, soft_wrap=True)

    yield show
