"""``koord version``: what a report of a problem should say."""

from __future__ import annotations

import argparse
import json
import platform
import sys

from koordinator import __version__
from koordinator.base.build import commit

_EPILOG = """\
examples:
  koord version
  koord version -o json | jq -r .commit
"""


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Register the command and its options."""
    parser = commands.add_parser(
        "version",
        help="show version, commit and Python",
        description="Show the version, the commit where it is known, and the Python that runs it.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text", help="lines for people, or JSON")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print it."""
    facts = {
        "version": __version__,
        "commit": commit(),
        "python": platform.python_version(),
        "executable": sys.executable,
        "platform": platform.platform(),
    }
    if options.output == "json":
        print(json.dumps(facts, indent=2))
    else:
        for name, value in facts.items():
            print(f"{name + ':':<12}{value or 'unknown'}")
    return 0
