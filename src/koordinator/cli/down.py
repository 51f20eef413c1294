"""``koord down``: stop the ``koord up`` of a folder, wherever it runs."""

from __future__ import annotations

import argparse
import os
import signal
import time
from pathlib import Path
from typing import Final

from koordinator.base.errors import KoordinatorError
from koordinator.cli.arguments import add_data_folder, whole_number
from koordinator.cli.data_folder import holder_of
from koordinator.cli.explain_cluster import local_folder
from koordinator.cli.explain_terminal import say

_POLL_SECONDS: Final = 0.1
_SECONDS: Final = 60
_EPILOG = """\
examples:
  koord down                       stop it, and wait until it is gone; its state is kept for the next koord up
  koord down --data /tmp/second    that of another folder

exit status: 0 when nothing runs there (any more), 1 when it still runs after the time
"""


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Register the command and its options."""
    parser = commands.add_parser(
        "down",
        help="stop the koord up of this machine",
        description="Stop a koord up or a koord demo, wherever it runs, as Ctrl-C there does.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_data_folder(parser)
    parser.add_argument(
        "--timeout", type=whole_number(1), default=_SECONDS, metavar="SECONDS", help="(default: %(default)s)"
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Stop it; one sentence says what came of it."""
    folder: Path = local_folder(options.data, os.environ)
    pid = holder_of(folder)
    if pid is None:
        print(f"nothing runs on {folder}")
        return 0
    try:
        os.kill(pid, signal.SIGTERM)
        return _wait(folder, pid, options.timeout)
    except ProcessLookupError:
        print(f"process {pid} has ended by itself")
        return 0
    except PermissionError as error:
        raise KoordinatorError(f"process {pid} holds {folder}, and may not be stopped by you") from error
    except KeyboardInterrupt:
        return say(f"process {pid} goes on stopping without you: koord down waits for it again", 130)


def _wait(folder: Path, pid: int, seconds: int) -> int:
    ends = time.monotonic() + seconds
    while holder_of(folder) == pid:
        if time.monotonic() > ends:
            return say(f"process {pid} still stops its programs after {seconds} s; kill -9 {pid} ends all at once", 1)
        time.sleep(_POLL_SECONDS)
    print(f"stopped (process {pid}); the state is kept in {folder}")
    return 0
