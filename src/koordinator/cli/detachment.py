"""A command that goes on in the background: its process has no terminal, and the starting one returns once it is up."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from koordinator.cli.explain_terminal import say

_POLL_SECONDS: Final = 0.1


def in_background(log: Path, serve: Callable[[], int], is_up: Callable[[int], bool], stop_command: str) -> int:
    """Run ``serve`` in a process of its own, whose output goes to ``log``, and to this terminal until ``is_up`` of its
    number; returns 0 then, or else the status with which it ended.

    To be called before there are threads or an event loop: the process is forked.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as output:
        begins = output.tell()
        pid = os.fork()
        if pid == 0:
            os._exit(_serve_alone(output.fileno(), serve))
    try:
        return _watch(pid, log, begins, is_up)
    except KeyboardInterrupt:
        return say(f"it goes on starting in the background (process {pid}): {stop_command} stops it", 130)


def _serve_alone(output: int, serve: Callable[[], int]) -> int:
    """In a session of its own, so that no terminal ends it."""
    os.setsid()
    nowhere = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((nowhere, 0), (output, 1), (output, 2)):
        os.dup2(source, target)
    try:
        status = serve()
    except Exception as error:
        # As main would say it, which this process never returns to.
        print(f"koord: {error}", file=sys.stderr)
        status = 1
    sys.stdout.flush()
    sys.stderr.flush()
    return status


def _watch(pid: int, log: Path, begins: int, is_up: Callable[[int], bool]) -> int:
    with log.open("rb") as written:
        written.seek(begins)
        while True:
            found, status = os.waitpid(pid, os.WNOHANG)
            up = is_up(pid)
            sys.stderr.write(written.read().decode(errors="replace"))
            if found or up:
                sys.stderr.flush()
                return os.waitstatus_to_exitcode(status) if found else 0
            time.sleep(_POLL_SECONDS)
