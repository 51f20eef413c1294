"""``koord version``: what a report of a problem should say."""

from __future__ import annotations

import argparse
import platform
import sys

from koordinator import __version__
from koordinator.base.build import commit
from koordinator.cli.output_forms import JSON, TEXT, YAML, add_output, rendered

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
    add_output(parser, TEXT, JSON, YAML)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print it."""
    found = facts()
    text = "".join(f"{name + ':':<12}{value or 'unknown'}\n" for name, value in found.items())
    print(rendered(options.output, found, lambda: text), end="")
    return 0


def facts() -> dict[str, str]:
    """What runs here, and on what."""
    return {
        "version": __version__,
        "commit": commit(),
        "python": platform.python_version(),
        "executable": sys.executable,
        "platform": platform.platform(),
    }
