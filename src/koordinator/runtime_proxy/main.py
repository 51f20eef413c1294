"""The main function of koord-runtime-proxy."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from typing import Final

from koordinator.base import logs
from koordinator.base.garbage_collection import spare_imports
from koordinator.base.process import set_nice
from koordinator.base.program import Process, Run, greet, run_program
from koordinator.runtime_proxy.command_line import Options, parse_options
from koordinator.runtime_proxy.program import RuntimeProxy

_PROGRAM: Final = "koord-runtime-proxy"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run until SIGTERM or SIGINT. 0 after a clean stop, 1 with one line on stderr for everything else."""

    def prepare() -> Run:
        options = parse_options(sys.argv[1:] if arguments is None else arguments)
        logs.configure(options.verbosity)
        greet(_PROGRAM, f"for {options.runtime}", (*options.remarks, *set_nice(options.nice)))
        spare_imports()
        return partial(_run, options)

    return run_program(_PROGRAM, prepare)


async def _run(options: Options, process: Process) -> None:
    await RuntimeProxy(options, process).run()
