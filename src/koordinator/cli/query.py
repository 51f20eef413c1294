"""Queries: what a command finds out, printed once, or with ``--watch`` each time that it has changed."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from koordinator.base.errors import ConfigurationError, KoordinatorError
from koordinator.cli import interruption
from koordinator.cli.explain_failure import NOT_REACHED, ExplainError, UsageError
from koordinator.cli.explain_terminal import Terminal, ended, output, say, write
from koordinator.cli.output_forms import NAME, WIDE, rendered
from koordinator.cli.session import Session, open_session

WATCH_SECONDS: Final = 2.0
_CLEAR: Final = "\x1b[H\x1b[2J"


@dataclass(frozen=True, slots=True)
class Answer:
    """What a command has found out, in every form in which it can be printed."""

    document: Any
    """For ``-o json`` and ``-o yaml``."""
    text: Callable[[], str]
    names: Sequence[str] = ()
    """For ``-o name``."""
    status: int = 0
    note: str = ""
    """A sentence for standard error."""
    changes: str | None = None
    """What ``--watch`` prints below what it has printed before; None where it draws all of it again."""

    def rendered(self, form: str, encoding: str) -> str:
        if form == NAME:
            return "".join(f"{name}\n" for name in self.names)
        return rendered(form, self.document, self.text, encoding)


Ask = Callable[[Session], Awaitable[Answer]]


def run_query(options: argparse.Namespace, prepare: Callable[[Terminal], Ask]) -> int:
    """Ask and print; returns the exit status. Each failure is one sentence on standard error.

    ``prepare`` checks what was said on the command line, and returns what is asked, once or again and again."""
    stream, terminal = output()
    watches = getattr(options, "watch", False)

    def show(answer: Answer, text: str) -> None:
        clears = watches and answer.changes is None and not terminal.piped
        write((_CLEAR if clears else "") + text, stream, terminal)
        if answer.note:
            say(answer.note, answer.status)

    try:
        # A row of a table has a line of its own where nobody wraps it.
        ask = prepare(replace(terminal, piped=True) if options.output == WIDE else terminal)
        pause = asyncio.sleep if watches else None
        return interruption.run(print_answers(ask, options.output, terminal.encoding, show, pause))
    except ExplainError as error:
        return say(str(error), error.status)
    except ConfigurationError as error:
        return say(str(error), UsageError.status)
    except KoordinatorError as error:
        return say(str(error), NOT_REACHED)
    except (KeyboardInterrupt, Exception) as error:
        return ended(error, stream)


async def print_answers(
    ask: Ask,
    form: str,
    encoding: str,
    show: Callable[[Answer, str], None],
    pause: Callable[[float], Awaitable[None]] | None,
) -> int:
    """Once, or with ``pause`` until cancelled, and then only what has changed. Returns the exit status."""
    before = None
    async with open_session() as session:
        while True:
            answer = await ask(session)
            text = answer.rendered(form, encoding) if answer.changes is None else answer.changes
            if text != before if answer.changes is None else text:
                show(answer, text)
            if pause is None:
                return answer.status
            before = text
            await pause(WATCH_SECONDS)
