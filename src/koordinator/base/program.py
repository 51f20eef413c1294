"""The main function of a program: it reads the configuration, runs until SIGTERM or SIGINT, and returns an exit status.

A program's ``main`` is one call of ``run_program``. ``koordinator.base.lifecycle`` defines the parts of a program and
the order in which they stop.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass, field
from random import Random
from typing import Any

import uvloop

import koordinator
from koordinator.base.clock import Clock, SystemClock
from koordinator.base.errors import KoordinatorError
from koordinator.base.metrics import Metrics
from koordinator.base.process import allow_many_open_files, exit_status, stop_on_signals

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Process:
    """What a program takes from the process that it runs in. Tests create one with a clock of their own."""

    clock: Clock = field(default_factory=SystemClock)
    random: Random = field(default_factory=Random)
    metrics: Metrics = field(default_factory=Metrics)
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    """Set by SIGTERM and SIGINT; the program then shuts down."""
    host: str = field(default_factory=socket.gethostname)


Run = Callable[[Process], Coroutine[Any, Any, None]]


def run_program(name: str, prepare: Callable[[], Run | None]) -> int:
    """Prepare, then run until the work ends or a SIGTERM or SIGINT arrives. Returns the exit status.

    ``prepare`` reads the command line and files, sets up logging and returns what to run, or None if there is nothing
    left to do. The status is 0 after a clean stop, and 1, with one line on stderr per error, if users can fix the
    errors; an unexpected error is raised with its stack trace. Call it in the main thread.
    """
    try:
        run = prepare()
        if run is not None:
            allow_many_open_files()
            uvloop.run(_run(name, run))
    except (KoordinatorError, OSError, ExceptionGroup) as error:
        return exit_status(name, error)
    return 0


def greet(name: str, details: str, remarks: Iterable[str] = ()) -> None:
    """Log one line that states what runs, and one for each setting that has no effect or an unexpected one."""
    logger.info("%s %s (process %d): %s", name, koordinator.__version__, os.getpid(), details)
    for remark in remarks:
        logger.warning("%s", remark)


async def _run(name: str, run: Run) -> None:
    process = Process()
    stop_on_signals(process.stop)
    process.metrics.add_process_metrics()
    process.metrics.add_build_info(name)
    await run(process)
