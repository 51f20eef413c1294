"""The program koord-runtime-proxy: flags in, a running proxy out."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import sys
from collections.abc import Sequence
from random import Random
from typing import Final

import uvloop

import koordinator
from koordinator.base import logs
from koordinator.base.clock import SystemClock
from koordinator.base.errors import KoordinatorError
from koordinator.base.metrics import Metrics
from koordinator.base.process import exit_status, stop_on_signals
from koordinator.runtime_proxy.command_line import Options, parse_options
from koordinator.runtime_proxy.program import Dependencies, RuntimeProxy

logger = logging.getLogger(__name__)

_PROGRAM: Final = "koord-runtime-proxy"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run until SIGTERM or SIGINT. 0 after a clean stop, 1 with one line on stderr for everything else."""
    try:
        options = parse_options(sys.argv[1:] if arguments is None else arguments)
        logs.configure(options.verbosity)
        logger.info("%s %s (process %d)", _PROGRAM, koordinator.__version__, os.getpid())
        for remark in options.remarks:
            logger.warning("%s", remark)
        # What is loaded by now stays: the collector need not look at it again, which is felt in the slowest calls.
        gc.freeze()
        uvloop.run(_run(options))
    except (KoordinatorError, OSError, ExceptionGroup) as error:
        return exit_status(_PROGRAM, error)
    return 0


async def _run(options: Options) -> None:
    stop = asyncio.Event()
    stop_on_signals(stop)
    metrics = Metrics()
    metrics.add_process_metrics()
    await RuntimeProxy(options, Dependencies(SystemClock(), Random(), metrics)).run(stop)


if __name__ == "__main__":
    sys.exit(main())
