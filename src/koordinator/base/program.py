"""The life of a program: it reads what it is told, runs until it is told to end, and says by its status how it ended.

A program's ``main`` is one call of ``run_program``. What the program consists of, and in which order that ends, is the
matter of ``koordinator.base.lifecycle``.
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
    """What the process lends to the program that runs in it. Tests make one of a clock of their own."""

    clock: Clock = field(default_factory=SystemClock)
    random: Random = field(default_factory=Random)
    metrics: Metrics = field(default_factory=Metrics)
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the program has to end, by SIGTERM and SIGINT."""
    host: str = field(default_factory=socket.gethostname)


Run = Callable[[Process], Coroutine[Any, Any, None]]


def run_program(name: str, prepare: Callable[[], Run | None]) -> int:
    """Prepare, then run until the work ends or SIGTERM or SIGINT asks for it; the exit status.

    ``prepare`` reads the command line and files, sets up logging and returns what to run, None where nothing is left to
    be done. The status is 0 after a clean stop, 1 with one line on stderr for every error that people can put right; an
    error that nobody foresaw is raised with its stack trace. For the main thread.
    """
    try:
        run = prepare()
        if run is not None:
            allow_many_open_files()
            uvloop.run(_run(run))
    except (KoordinatorError, OSError, ExceptionGroup) as error:
        return exit_status(name, error)
    return 0


def greet(name: str, details: str, remarks: Iterable[str] = ()) -> None:
    """Log one line that says what runs, and one for each setting that will not have the effect that is expected."""
    logger.info("%s %s (process %d): %s", name, koordinator.__version__, os.getpid(), details)
    for remark in remarks:
        logger.warning("%s", remark)


async def _run(run: Run) -> None:
    process = Process()
    stop_on_signals(process.stop)
    process.metrics.add_process_metrics()
    await run(process)
