"""``koord``: start a local cluster, inspect it, play the demonstration, explain decisions.

A command's module is loaded only when that command is given: some take a second, and ``koord --version`` should not.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Final

from koordinator.base.build import VersionAction
from koordinator.base.entry import what_is_missing
from koordinator.base.errors import KoordinatorError
from koordinator.cli.arguments import CommandParser

COMMANDS: Final = {
    "up": ("koordinator.cli.up", "start an embedded cluster with simulated nodes and the programs"),
    "status": ("koordinator.cli.status", "say what runs, where, and whether it is healthy"),
    "down": ("koordinator.cli.down", "stop the koord up of this machine"),
    "logs": ("koordinator.cli.logs", "print what a program of the koord up of this machine has written"),
    "demo": ("koordinator.cli.demo", "play a scripted day on 20 simulated nodes and report what came of it"),
    "explain": ("koordinator.cli.explain", "say why a pod is pending or where it is, or why a node takes no pods"),
    "get": ("koordinator.cli.get", "list pods that wait, quotas, gangs, reservations, nodes or migrations"),
    "audit": ("koordinator.cli.audit", "list what was evicted, moved, resized or suppressed, when, by whom and why"),
    "top": ("koordinator.cli.top", "show what each class of pods has, uses, and could use, by node or pod"),
    "page": ("koordinator.cli.page.command", "show the cluster in a browser, kept current"),
    "recommend": (
        "koordinator.cli.recommend",
        "show what workloads should request, and what that saves; --apply it",
    ),
    "drain": ("koordinator.cli.drain", "empty a node by its DrainNode, and show how far that is"),
    "migrate": ("koordinator.cli.migrate", "move a pod by a PodMigrationJob, and show how far that is"),
    "what-if": ("koordinator.cli.what_if", "say what a change would do: a drain, a new workload, another node"),
    "lint": ("koordinator.cli.lint", "find typing mistakes in manifests that an API server takes in silence"),
    "doctor": ("koordinator.cli.doctor", "say which kernel features this machine has for koordlet"),
    "manifests": ("koordinator.cli.manifests", "print what a real cluster needs, for kubectl apply"),
    "support-bundle": (
        "koordinator.cli.support_bundle",
        "gather what a report of a problem needs into one file, without secrets",
    ),
    "version": ("koordinator.cli.version", "show version, commit and Python"),
    "completion": ("koordinator.cli.completion", "print the completion script of a shell"),
}
"""Command -> the module whose ``add_parser(commands)`` registers it, and what the list of commands says of it."""

PLUGIN: Final = "kubectl-koord"
"""The name by which kubectl finds it on the PATH."""
_DESCRIPTION = """\
Try and inspect QoS-based co-location scheduling for Kubernetes.

  koord demo            play a scripted day on 20 simulated nodes and report what came of it
  koord up              start an embedded cluster that your own kubectl can talk to; Ctrl-C stops it
  koord status          in another terminal: what runs, where, and whether it is healthy (also: logs PROGRAM, down)
  koord explain pod X   why is pod X pending, or on the node that it is on? (also: explain node N)
  koord get pending     which pods wait, and why? (also: quotas, gangs, reservations, nodes, migrations)
  koord audit           what was evicted, moved, resized or suppressed, when, by whom and why? (also: --pod, --node)
  koord top             what each class of pods has been given, uses, and could use (also: nodes, pods)
  koord page            all of that in a browser, kept current
  koord recommend       what should workloads request, and what would that save? (--apply does it)
  koord drain N         empty node N by its DrainNode, and show how far that is (also: migrate POD)
  koord what-if drain N where would the pods of node N go? (also: apply, fit, scale, add-node; nothing is written)
  koord lint FILE       which typing mistakes in a manifest would pass in silence?
  koord doctor          which kernel features does this machine have for koordlet?
  koord manifests       print what a real cluster needs: koord manifests | kubectl apply -f -
  koord support-bundle  gather what a report of a problem needs into one file, without secrets

koord COMMAND --help has examples; kubectl koord COMMAND is the same. The programs of a real cluster are commands of
their own: koord-scheduler --help.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit status."""
    given = sys.argv[1:] if arguments is None else arguments
    try:
        options = make_parser(_needed(given)).parse_args(given)
        status: int = options.run(options)
        sys.stdout.flush()
    except KoordinatorError as error:
        print(f"koord: {error}", file=sys.stderr)
        return 1
    except ModuleNotFoundError as error:
        print(f"koord: {what_is_missing(error)}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # The reader of the output, such as head, has closed it. Nothing is left to be flushed at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    return status


def make_parser(loaded: Iterable[str] = COMMANDS) -> argparse.ArgumentParser:
    """The parser that knows all commands by name, and ``loaded`` with their options."""
    parser = CommandParser(
        prog=_program_name(), description=_DESCRIPTION, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--version", action=VersionAction)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    wanted = set(loaded)
    for name, (module, summary) in COMMANDS.items():
        if name in wanted:
            import_module(module).add_parser(commands)
        else:
            commands.add_parser(name, help=summary)
    return parser


def _program_name() -> str:
    """``kubectl koord`` where kubectl has started it as a plugin."""
    return "kubectl koord" if Path(sys.argv[0]).name == PLUGIN else "koord"


def _needed(arguments: Sequence[str]) -> Iterable[str]:
    """The command that is given; none, where the list of commands or the version is requested."""
    return [argument for argument in arguments[:1] if argument in COMMANDS]


if __name__ == "__main__":
    sys.exit(main())
