"""What the terminal can show: its width, its characters, its colours; and the one place where text is written to it."""

from __future__ import annotations

import io
import os
import shutil
import sys
import traceback
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TextIO

import msgspec
from rich.console import Console
from rich.markup import escape
from rich.measure import Measurement
from rich.padding import Padding
from rich.table import Table

from koordinator.cli.explain_failure import DEFECT, INTERRUPTED, NOT_REACHED, PIPE_CLOSED

# Tables, lists and sentences of explanations on a terminal of any width. Titles are lines of their own: a table would
# break them at its width.


__all__ = ["drawable", "escape", "print_lines", "print_list", "print_table", "print_text", "print_whole"]


class _PipedConsole(Console):
    """Of a stream that is no terminal: what reads it wants each row of a table on a line of its own."""


def print_table(console: Console, title: str, table: Table) -> None:
    """Write it below its title, after an empty line. A cell that is wider than its column is wrapped: a name that is
    cut off cannot be looked up."""
    for column in table.columns:
        column.overflow = "fold"
    console.print()
    if title:
        console.print(f"[italic]{escape(title)}[/italic]")
    print_whole(console, table)


def print_whole(console: Console, table: Table) -> None:
    """Write it at the width of the terminal; where there is none, at the width that it needs."""
    if not isinstance(console, _PipedConsole):
        console.print(table)
        return
    width = console.width
    console.width = max(width, Measurement.get(console, console.options.update(max_width=_ANY_WIDTH), table).maximum)
    try:
        console.print(table)
    finally:
        console.width = width


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


def drawable(console: Console, text: str) -> str:
    """The same with what we write ourselves in the characters that the console can draw."""
    return text.translate(_IN_ASCII) if console.options.ascii_only else text


_WIDTH: Final = 80
_ANY_WIDTH: Final = 100_000
_LEAST_WIDTH: Final = 40
"""Below it tables would be columns of single letters."""
_IN_ASCII: Final = str.maketrans(
    {"…": "...", "•": "*", "×": "x", "–": "-", "—": "-", "→": "->", "≥": ">=", "≤": "<=", "µ": "u", "’": "'", "“": '"'}
    | {"”": '"', "\N{NO-BREAK SPACE}": " "}
)
_CONTROLS: Final = {
    **dict.fromkeys((*range(0x20), *range(0x7F, 0xA0)), "?"),
    ord("\n"): "\n",
    ord("\t"): " ",
}
"""What a message of a stranger's program must not do to the terminal."""


class _AsciiBuffer(io.StringIO):
    """Rich draws with what the encoding of its file has."""

    encoding = "ascii"


@dataclass(frozen=True, slots=True)
class Terminal:
    """``ascii_only`` is about what we draw and say ourselves; ``encoding`` about what the stream can carry at all."""

    width: int = _WIDTH
    ascii_only: bool = True
    colour: bool = False
    encoding: str = "utf-8"
    piped: bool = False
    """It is no terminal, and nobody has said how wide it is."""

    def console(self) -> Console:
        """A console whose text ``text_of`` gives back."""
        kind = _PipedConsole if self.piped else Console
        return kind(
            file=_AsciiBuffer() if self.ascii_only else io.StringIO(),
            width=self.width,
            # Else rich measures the terminal of this process, which may be another.
            height=25,
            force_terminal=self.colour,
            color_system="standard" if self.colour else None,
            no_color=not self.colour,
            emoji=False,
            highlight=False,
            legacy_windows=False,
        )

    def readable(self, found: Any) -> Any:
        """A document of which every text can be shown: without control characters, and in the characters of the
        terminal."""
        if isinstance(found, str):
            text = found.translate(_CONTROLS)
            if self.ascii_only:
                text = text.translate(_IN_ASCII)
            return text.encode(self.encoding, "backslashreplace").decode(self.encoding)
        if isinstance(found, msgspec.Struct):
            fields = {name: self.readable(getattr(found, name)) for name in found.__struct_fields__}
            return type(found)(**fields)
        if isinstance(found, Mapping):
            return {key: self.readable(value) for key, value in found.items()}
        if isinstance(found, list | tuple):
            return [self.readable(value) for value in found]
        return found


PAGE_TERMINAL: Final = Terminal(width=100, ascii_only=False)
"""For texts that ``koord page`` shows."""


def text_of(console: Console) -> str:
    """What was printed on a console of ``Terminal.console``."""
    assert isinstance(console.file, io.StringIO)
    return "".join(f"{line.rstrip()}\n" for line in console.file.getvalue().splitlines())


def terminal_of(stream: TextIO, environment: Mapping[str, str]) -> Terminal:
    """What ``stream`` can show. Anything that is not a terminal gets plain ASCII drawing, and 80 columns unless COLUMNS
    says otherwise; texts of others keep their characters where the encoding has them."""
    encoding = _encoding(stream)
    plain = not stream.isatty() or environment.get("TERM", "") == "dumb"
    unicode = not plain and encoding.startswith("utf") and _locale_has_unicode(environment)
    return Terminal(
        width=_width(stream, environment),
        ascii_only=not unicode,
        colour=not plain and not environment.get("NO_COLOR"),
        encoding=encoding,
        piped=not stream.isatty() and not environment.get("COLUMNS", "").isdecimal(),
    )


def write(text: str, stream: TextIO, terminal: Terminal) -> None:
    """All at once, with what the stream cannot carry escaped. Raises BrokenPipeError when the reader has closed it."""
    stream.write(text.encode(terminal.encoding, "backslashreplace").decode(terminal.encoding))
    stream.flush()


def close_quietly(stream: TextIO) -> None:
    """After a failed write: what is left in the buffer goes nowhere, or Python would try again at its end, and
    exit with a status of its own when that fails."""
    try:
        descriptor = stream.fileno()
    except (OSError, ValueError):
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, descriptor)
    os.close(nowhere)


def output() -> tuple[TextIO, Terminal]:
    """Standard output and what it can show; nowhere, when the parent process has closed it."""
    stream = sys.stdout if sys.stdout is not None else io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    return stream, terminal_of(stream, os.environ)


def _encoding(stream: TextIO) -> str:
    name = (stream.encoding or "ascii").lower()
    try:
        "".encode(name)
    except LookupError:
        return "ascii"
    return name


def _locale_has_unicode(environment: Mapping[str, str]) -> bool:
    """By the locale's own rule: LC_ALL counts before LC_CTYPE, and that before LANG; none at all is the C locale, in
    which Python speaks UTF-8 to a terminal that may not."""
    name = next((environment[key] for key in ("LC_ALL", "LC_CTYPE", "LANG") if environment.get(key)), "C")
    return name.lower().replace("-", "").partition("@")[0].endswith("utf8")


def _width(stream: TextIO, environment: Mapping[str, str]) -> int:
    columns = environment.get("COLUMNS", "")
    if columns.isdecimal() and int(columns):
        return max(_LEAST_WIDTH, int(columns))
    if not stream.isatty():
        return _WIDTH
    try:
        found = os.get_terminal_size(stream.fileno()).columns
    except (OSError, ValueError):
        found = shutil.get_terminal_size((_WIDTH, 24)).columns
    return max(_LEAST_WIDTH, found or _WIDTH)


def say(text: str, status: int) -> int:
    """One sentence, whatever lines a server has put into it."""
    try:
        print(f"koord: {' '.join(text.split())}", file=sys.stderr, flush=True)
    except OSError:
        # That cannot be read either; the exit status shows it.
        close_quietly(sys.stderr)
    return status


def ended(error: BaseException, stream: TextIO) -> int:
    """The exit status of a command that could not write what it found out, was interrupted, or has a defect; said in a
    sentence where anybody may read it."""
    if isinstance(error, BrokenPipeError):
        close_quietly(stream)
        return PIPE_CLOSED
    if isinstance(error, KeyboardInterrupt):
        return say("interrupted", INTERRUPTED)
    if isinstance(error, OSError):
        close_quietly(stream)
        return say(f"the output could not be written: {error.strerror or error}", NOT_REACHED)
    return _defect(error)


def _defect(error: BaseException) -> int:
    """An internal error: the sentence names the place for a bug report."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    where = f"{Path(last.filename).name}:{last.lineno}"
    return say(f"a defect of this command, please report it: {type(error).__name__}: {error} ({where})", DEFECT)
