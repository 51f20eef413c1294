"""Which controllers run: the flag ``--controllers`` with the syntax of kube-controller-manager.

Two programs have the flag, each with controllers of its own: the API server and the workload controllers beside it.
"""

from __future__ import annotations

import argparse
from collections.abc import Collection

from koordinator.base.name_list import is_enabled, unknown_names


def selected(text: str, known: Collection[str]) -> tuple[str, ...]:
    """The names in ``known`` that a list selects; an empty list selects none. Raises argparse.ArgumentTypeError for a
    name that is not known."""
    wanted = [word.strip() for word in text.split(",") if word.strip()]
    if errors := unknown_names(wanted, known):
        raise argparse.ArgumentTypeError("; ".join(errors))
    return tuple(name for name in known if is_enabled(name, wanted))


def add_controllers_flag(parser: argparse.ArgumentParser, known: Collection[str]) -> None:
    """Add ``--controllers``, whose value is the selected names."""
    parser.add_argument(
        "--controllers",
        type=lambda text: selected(text, known),
        default=tuple(known),
        metavar="LIST",
        help="controllers to run, as kube-controller-manager's flag has it: '*' (the default) for all of "
        f"{', '.join(known)}; NAME for one; -NAME for all but one, after '*'; an empty list for none",
    )
