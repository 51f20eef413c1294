"""``koord doctor``: what this machine has for koordlet, of its kernel and of the programs beside it, and what is off
without that."""

from __future__ import annotations

import argparse
import shutil
import textwrap
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from koordinator.cli.output_forms import JSON, NAME, TEXT, YAML, add_output
from koordinator.cli.query import Answer, run_query
from koordinator.node.cgroup_layout import CgroupVersion
from koordinator.node.errors import Unavailable
from koordinator.node.features import Feature, FeatureState, Machine, Undetermined, Works, probe_machine
from koordinator.node.host import HOOK_SERVERS, Host
from koordinator.node.node_programs import probe_node_programs

_DESCRIPTION = """\
Check the kernel features of this machine that koordlet uses, and the programs that it works with: the container
runtime, kubelet, its own hook server, and koordlet itself, which says in which modes its runtime hooks are called and
whether it finds the cgroups of all pods. For each, say whether it works; if not, say what is missing, what would
provide it, and which part of koordlet is off without it. The command changes nothing, and it needs neither a cluster
nor root. What only root can check is shown as unknown.
"""
_EPILOG = """\
examples:
  koord doctor                       the table
  koord doctor -o name               the features that are missing
  koord doctor -o json | jq -r '.features[] | select(.state == "unknown") | .name'
  koord doctor --root /host          the machine whose files are mounted at /host (from inside a container)
"""
_NO_CGROUPS: Final = "unknown (kubelet has made no cgroups here yet)"
_NAMES: Final = {Works: "works", Unavailable: "missing", Undetermined: "unknown"}


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Register the command and its options."""
    parser = commands.add_parser(
        "doctor",
        help="say which kernel features this machine has for koordlet",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_output(parser, TEXT, NAME, JSON, YAML, names="the features that are missing")
    parser.add_argument(
        "--root", type=Path, metavar="DIR", help="the folder that the machine's root is mounted at (default: /)"
    )
    parser.add_argument(
        "--koordlet",
        default="127.0.0.1:9316",
        metavar="HOST:PORT",
        help="where koordlet serves /metrics, as its --addr (default: %(default)s)",
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print the report; 0, whatever is missing: a machine without a feature is not a broken one."""
    return run_query(options, lambda _: lambda _: _answer(options))


async def _answer(options: argparse.Namespace) -> Answer:
    root = options.root or ""
    host = Host() if options.root is None else Host.below(options.root)
    programs = await probe_node_programs(host, f"{root}{HOOK_SERVERS}", options.koordlet)
    machine = probe_machine(host, wakes_gpus=True)
    machine = replace(machine, features=(*machine.features, *programs))
    width = min(shutil.get_terminal_size(fallback=(80, 24)).columns, 110)
    names = [feature.name for feature in machine.features if isinstance(feature.state, Unavailable)]
    return Answer(as_json(machine), lambda: "\n".join(as_text(machine, width)) + "\n", names)


def as_json(machine: Machine) -> dict[str, Any]:
    """The report as a document; absent facts are null."""
    return {
        "kernel": machine.kernel,
        "architecture": machine.architecture,
        "cgroupVersion": machine.cgroup_version and machine.cgroup_version.value,
        "cgroupDriver": machine.cgroup_driver and machine.cgroup_driver.value,
        "podsCgroup": machine.kubepods,
        "isRoot": machine.is_root,
        "features": [
            {"name": feature.name, "usedBy": list(feature.used_by), **_state_as_json(feature.state)}
            for feature in machine.features
        ],
    }


def as_text(machine: Machine, width: int) -> Iterator[str]:
    """The report in lines of at most ``width`` columns, but for words that are longer."""
    known = machine.kubepods is not None
    driver = f"{machine.cgroup_driver}, pods in {machine.kubepods}" if known else _NO_CGROUPS
    yield f"kernel   {machine.kernel} on {machine.architecture}"
    yield f"cgroups  {_version(machine.cgroup_version)}, driver {driver}"
    yield f"user     {'root' if machine.is_root else 'not root: what only root can see is said to be unknown'}"
    yield ""
    name_width = max(len(feature.name) for feature in machine.features)
    for feature in machine.features:
        yield from _lines(feature, name_width, width)
    counts = Counter(_NAMES[type(feature.state)] for feature in machine.features)
    yield ""
    yield ", ".join(f"{name}: {counts[name]}" for name in _NAMES.values() if counts[name])


def _lines(feature: Feature, name_width: int, width: int) -> Iterator[str]:
    state = feature.state
    if isinstance(state, Works):
        yield from _wrapped(f"works    {feature.name:{name_width}}  ", state.detail, width)
        return
    yield f"{_NAMES[type(state)]:8} {feature.name}"
    indent = " " * 11
    yield from _wrapped(f"{indent}because      ", state.reason, width)
    yield from _wrapped(f"{indent}it needs     ", state.needs, width)
    yield from _wrapped(f"{indent}off without  ", ", ".join(feature.used_by), width)


def _wrapped(head: str, text: str, width: int) -> list[str]:
    return textwrap.wrap(
        text,
        width,
        initial_indent=head,
        subsequent_indent=" " * len(head),
        break_long_words=False,
        break_on_hyphens=False,
    ) or [head.rstrip()]


def _version(version: CgroupVersion | None) -> str:
    return "none mounted" if version is None else f"version {version.value}"


def _state_as_json(state: FeatureState) -> dict[str, str]:
    if isinstance(state, Works):
        return {"state": "works", "detail": state.detail}
    return {"state": _NAMES[type(state)], "reason": state.reason, "needs": state.needs}
