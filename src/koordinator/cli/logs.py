"""``koord logs``: what a program of the local cluster has written."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from koordinator.base.errors import KoordinatorError
from koordinator.base.spelling import did_you_mean
from koordinator.cli.arguments import add_data_folder, whole_number
from koordinator.cli.data_folder import log_folder
from koordinator.cli.explain_cluster import local_folder
from koordinator.cli.explain_terminal import ended, output, write
from koordinator.cli.local_cluster.programs import PROGRAMS

UP: Final = "up"
"""What a koord up in the background has said itself."""
_NAMES: Final = (*PROGRAMS, UP)
_PREFIX: Final = "koord-"
_POLL_SECONDS: Final = 0.2
_BLOCK: Final = 1 << 16
_EPILOG = """\
examples:
  koord logs scheduler             the last 100 lines; the programs: apiserver, nodes, manager, scheduler, descheduler,
                                   controllers, and up: what a koord up in the background says itself
  koord logs koord-manager -f      and what it writes from now on, until Ctrl-C
  koord logs nodes --tail -1       all of it
"""


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Register the command and its options."""
    parser = commands.add_parser(
        "logs",
        help="print what a program of the koord up of this machine has written",
        description="Print the log of a program of a koord up, also after it has ended.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("program", type=_program, metavar="PROGRAM", help=", ".join(_NAMES))
    parser.add_argument("-f", "--follow", action="store_true", help="go on with what it writes from now on")
    parser.add_argument(
        "--tail", type=whole_number(-1), default=100, metavar="LINES", help="how many of the last lines (default: 100)"
    )
    add_data_folder(parser)
    parser.set_defaults(run=run)


def _program(text: str) -> str:
    """``koord-scheduler`` is the scheduler, too."""
    name = text.removeprefix(_PREFIX)
    if name not in _NAMES:
        raise argparse.ArgumentTypeError(f"{text!r}: the programs are {', '.join(_NAMES)}{did_you_mean(name, _NAMES)}")
    return name


def run(options: argparse.Namespace) -> int:
    """Print it; a program without a log has not run from that folder."""
    log = log_folder(local_folder(options.data, os.environ)) / f"{options.program}.log"
    if not log.exists():
        raise KoordinatorError(
            f"there is no {log}: no {options.program} has run from that folder; --data names another"
        )
    stream, terminal = output()
    try:
        for text in contents(log, options.tail, follow=options.follow, sleep=time.sleep):
            write(text, stream, terminal)
    except (KeyboardInterrupt, OSError) as error:
        return 130 if isinstance(error, KeyboardInterrupt) else ended(error, stream)
    return 0


def contents(log: Path, lines: int, *, follow: bool, sleep: Callable[[float], None]) -> Iterator[str]:
    """The last ``lines`` (below 0: all), and with ``follow`` what comes after; a log that was cut off begins anew."""
    with log.open("rb") as file:
        file.seek(_start_of_last(log, lines))
        while True:
            while block := file.read(_BLOCK):
                yield block.decode(errors="replace")
            if not follow:
                return
            sleep(_POLL_SECONDS)
            if os.fstat(file.fileno()).st_size < file.tell():
                file.seek(0)


def _start_of_last(log: Path, lines: int) -> int:
    """Where the last so many lines begin; read from the end, since logs may be long."""
    if lines < 0:
        return 0
    with log.open("rb") as file:
        position, found = file.seek(0, os.SEEK_END), 0
        end = position
        while position:
            start = max(0, position - _BLOCK)
            file.seek(start)
            block = file.read(position - start)
            for index in range(len(block) - 1, -1, -1):
                if block[index] == ord("\n") and start + index != end - 1:
                    found += 1
                    if found == lines:
                        return start + index + 1
            position = start
    return 0 if lines else end
