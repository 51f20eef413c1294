"""``koord demo``: a scripted day on 20 simulated nodes, and whether what we claim of it is true."""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path

from koordinator.cli.demo.play import play
from koordinator.cli.demo.report import claims, print_report

_DESCRIPTION = """\
Play a day on 20 simulated nodes in under a minute: online services first, then batch pods offered into what they leave
idle. The API server, the scheduler and everything between them are real; the nodes and what their pods use are
simulated. Ends with status 1 if one of the report's claims does not hold.
"""


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Register the command and its options."""
    parser = commands.add_parser(
        "demo",
        help="play a scripted day on 20 simulated nodes and report what came of it",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of the simulated usage (default: 0)")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep logs and state in this folder")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Play, report, judge."""
    with tempfile.TemporaryDirectory(prefix="koord-demo-") as folder, asyncio.Runner() as runner:
        data = options.keep.expanduser().absolute() if options.keep else Path(folder)
        day = runner.run(play(data, options.seed))
    judged = claims(day)
    print_report(day, judged)
    failed = [claim for claim in judged if not claim.holds]
    if failed:
        print(f"koord demo: {len(failed)} of {len(judged)} claims do not hold", file=sys.stderr)
    return 1 if failed else 0
