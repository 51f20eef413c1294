"""The options that several commands have, and have alike: in which form they print what they have found out (``-o``),
whether they go on (``-w``), and what they look at (``-n``, ``-A``, ``-l``); and the one place where documents become
JSON or YAML."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from typing import Any, Final

TEXT: Final = "text"
WIDE: Final = "wide"
NAME: Final = "name"
JSON: Final = "json"
YAML: Final = "yaml"
JSONL: Final = "jsonl"
ALL: Final = (TEXT, WIDE, NAME, JSON, YAML)
_HELP: Final = {
    TEXT: "tables and sentences for people",
    WIDE: "the same with each row on one line, and with more columns where there are any",
    NAME: "names alone",
    JSON: "all that is known, as JSON",
    YAML: "the same as YAML",
    JSONL: "each item as JSON on a line of its own",
}


def add_output(parser: argparse.ArgumentParser, *forms: str, names: str = "") -> None:
    """``-o`` with these forms; the first is what is printed without it. ``names`` says whose names ``-o name`` has."""
    says = {**_HELP, NAME: f"the names of {names} alone"} if names else _HELP
    words = "; ".join(f"{form}: {says[form]}" for form in forms)
    parser.add_argument("-o", "--output", choices=forms, default=forms[0], help=words)


def add_watch(parser: argparse.ArgumentParser) -> None:
    """``-w``."""
    parser.add_argument(
        "-w", "--watch", action="store_true", help="again every two seconds, where it has changed, until Ctrl-C"
    )


def add_namespaces(parser: argparse.ArgumentParser, of: str) -> None:
    """``-n`` and ``-A`` of commands that look at all namespaces unless they are told otherwise."""
    where = parser.add_mutually_exclusive_group()
    where.add_argument("-n", "--namespace", default="", metavar="NAME", help=f"of {of} (default: all)")
    where.add_argument("-A", "--all-namespaces", action="store_true", help="the default, as one types it for kubectl")


def add_namespace(parser: argparse.ArgumentParser, of: str) -> None:
    """``-n`` of commands about objects that are named."""
    parser.add_argument("-n", "--namespace", metavar="NAME", help=f"{of} (default: that of the context, else default)")


def add_selector(parser: argparse.ArgumentParser, of: str) -> None:
    """``-l``."""
    parser.add_argument(
        "-l",
        "--selector",
        type=_selector,
        default="",
        metavar="LABELS",
        help=f"{of} with these labels alone: app=web,tier!=cache",
    )


def _selector(text: str) -> str:
    # Loaded for those who select: a small command should not wait for it.
    from koordinator.model.label_selector import SelectorError, parse_selector

    try:
        parse_selector(text)
    except SelectorError as error:
        raise argparse.ArgumentTypeError(f"{text!r}: {error}") from error
    return text


def rendered(form: str, document: Any, text: Callable[[], str], encoding: str = "utf-8") -> str:
    """``document`` as JSON or YAML for a stream of that encoding, or else what ``text`` returns."""
    if form == JSON:
        return json.dumps(document, indent=2, ensure_ascii=not encoding.startswith("utf")) + "\n"
    if form == JSONL:
        return "".join(
            f"{json.dumps(each, ensure_ascii=not encoding.startswith('utf'))}\n" for each in document["items"]
        )
    if form == YAML:
        # Loaded for those who ask for it: it takes as long as everything else of a small command.
        import yaml

        dumped: str = yaml.safe_dump(document, sort_keys=False, allow_unicode=encoding.startswith("utf"))
        return dumped
    return text()
