"""``koord``: start a local cluster, play the demonstration, ask the scheduler why."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from koordinator import __version__
from koordinator.base.errors import KoordinatorError
from koordinator.cli import demo, explain, manifests, up

_DESCRIPTION = """\
Try and inspect QoS-based co-location scheduling for Kubernetes.

  koord demo            play a scripted day on 20 simulated nodes and report what came of it
  koord up              start an embedded cluster that your own kubectl can talk to; Ctrl-C stops it
  koord explain pod X   why is pod X pending, or on the node that it is on? (also: explain node N)
  koord manifests       print what a real cluster needs: koord manifests | kubectl apply -f -

The programs of a real cluster are commands of their own: koord-scheduler --help.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit status."""
    parser = argparse.ArgumentParser(
        prog="koord", description=_DESCRIPTION, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--version", action="version", version=f"koord {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for command in (up, demo, explain, manifests):
        command.add_parser(commands)
    options = parser.parse_args(arguments)
    try:
        status: int = options.run(options)
    except KoordinatorError as error:
        print(f"koord: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return status


if __name__ == "__main__":
    sys.exit(main())
