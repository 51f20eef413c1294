"""Which controllers run: the flag ``--controllers`` with the syntax of kube-controller-manager.

Two programs have the flag, each with controllers of its own: the API server and the workload controllers beside it.
"""

from __future__ import annotations

import argparse
from collections.abc import Collection


def selected(text: str, known: Collection[str]) -> tuple[str, ...]:
    """The names in ``known`` that a list selects: ``*`` is all of them, ``NAME`` one, ``-NAME`` takes one away. An
    empty list selects none. Raises argparse.ArgumentTypeError for a name that is not known."""
    words = [word.strip() for word in text.split(",") if word.strip()]
    unknown = [word for word in words if word != "*" and word.removeprefix("-") not in known]
    if unknown:
        raise argparse.ArgumentTypeError(f"{unknown[0]!r} is not usable: * is allowed, or among {', '.join(known)}")
    return tuple(name for name in known if f"-{name}" not in words and (name in words or "*" in words))


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
