"""``koord status``: what runs, where, and whether it is healthy."""

from __future__ import annotations

import argparse
import asyncio
import json
from pathlib import Path

from rich.console import Console

from koordinator.base.clock import SystemClock
from koordinator.cli.data_folder import default_data_folder
from koordinator.cli.status_report import collect, document
from koordinator.cli.status_text import print_status

_DESCRIPTION = """\
Say what the `koord up` or `koord demo --keep` of a data folder runs, where each program serves, whether it is healthy,
and how often it had to be started again. Every program and the API server are asked now.

exit status: 0 healthy; 1 something is not healthy, or is still starting; 3 nothing runs on this folder.
"""
_EPILOG = """\
examples:
  koord status                                 the koord up of this machine
  koord status --data /tmp/big                 one that keeps its state elsewhere
  koord status -o json | jq '.programs[] | {name, healthy, restarts}'
  until koord status > /dev/null; do sleep 1; done
                                               wait until everything is healthy
"""


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Register the command and its options."""
    parser = commands.add_parser(
        "status",
        help="say what runs, where, and whether it is healthy",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--data",
        type=Path,
        default=default_data_folder(),
        metavar="DIR",
        help="the folder of a koord up (default: %(default)s)",
    )
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text", help="a table for people, or JSON")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Ask, print."""
    clock = SystemClock()
    report = asyncio.run(collect(options.data.expanduser().absolute(), clock))
    if options.output == "json":
        print(json.dumps(document(report), indent=2, ensure_ascii=False))
    else:
        print_status(report, clock.now(), Console())
    return report.exit_status
