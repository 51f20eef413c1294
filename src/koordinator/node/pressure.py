"""Pressure stall information (PSI): for what share of the time tasks waited for CPU, memory or I/O."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from koordinator.node.cgroup_layout import HYBRID, CgroupLayout, CgroupVersion
from koordinator.node.errors import (
    MalformedFileError,
    MissingFileError,
    OddRowError,
    Skipped,
    Unavailable,
    UnreadableFileError,
)
from koordinator.node.host import Host, exists, parse_count, read_file

RESOURCES: Final = ("cpu", "memory", "io")


@dataclass(frozen=True, slots=True)
class Stall:
    """Percent of the last 10, 60 and 300 seconds, and microseconds since boot."""

    avg10: float = 0.0
    avg60: float = 0.0
    avg300: float = 0.0
    total: int = 0


@dataclass(frozen=True, slots=True)
class Pressure:
    """``some``: at least one task waited. ``full``: all did; None where the kernel does not say (cpu before 5.13)."""

    some: Stall
    full: Stall | None


def parse_pressure(path: str, content: bytes, skipped: Skipped) -> Pressure:
    """The content of a ``*.pressure`` file; MalformedFileError if it has no line ``some`` with what belongs there."""
    stalls = {}
    for line in content.decode("ascii", errors="replace").splitlines():
        kind, _, rest = line.partition(" ")
        stall = _stall(rest) if kind in ("some", "full") else None
        if stall is None:
            skipped(OddRowError(path, f"{line[:80]!r} is not some or full with avg10=… avg60=… avg300=… total=…"))
        else:
            stalls[kind] = stall
    if "some" not in stalls:
        raise MalformedFileError(path, "has no line some avg10=… avg60=… avg300=… total=…")
    return Pressure(stalls["some"], stalls.get("full"))


def pressure_of_machine(host: Host, skipped: Skipped) -> dict[str, Pressure] | Unavailable:
    """The pressure of the whole machine by resource; Unavailable if this kernel does not measure it."""
    try:
        paths = {resource: f"{host.proc}/pressure/{resource}" for resource in RESOURCES}
        return {resource: parse_pressure(path, read_file(path), skipped) for resource, path in paths.items()}
    except MissingFileError as error:
        return Unavailable(str(error), "a kernel from 4.20 on with CONFIG_PSI=y")
    except UnreadableFileError as error:
        # A kernel with CONFIG_PSI_DEFAULT_DISABLED has the files and refuses to open them.
        return Unavailable(str(error), "the boot parameter psi=1")


def cgroup_pressure_path(layout: CgroupLayout, relative: str, resource: str) -> str:
    """The file of a cgroup. Of version 1 only Anolis OS has one; elsewhere the hierarchy of version 2 may have it that
    systemd mounts beside the others (its hybrid mode), where runc and kubelet make the same folders."""
    path = f"{layout.folder('cpuacct', relative)}/{resource}.pressure"
    if layout.version is CgroupVersion.V1 and not exists(path):
        beside = f"{layout.root}/{HYBRID}/{relative}/{resource}.pressure"
        return beside if exists(beside) else path
    return path


def probe_pods(layout: CgroupLayout) -> Unavailable | None:
    """None if the kernel measures the pressure of pods, or kubelet has made no folder of pods yet."""
    folder = layout.folder("cpuacct", layout.kubepods)
    if not exists(folder):
        return None
    for resource in RESOURCES:
        path = cgroup_pressure_path(layout, layout.kubepods, resource)
        if not exists(path):
            return Unavailable(
                f"{folder} has no {resource}.pressure",
                "cgroup version 2 with CONFIG_PSI=y, also beside version 1, or Anolis OS",
            )
        try:
            read_file(path)
        except UnreadableFileError as error:
            return Unavailable(str(error), "the boot parameter psi=1")
        except MissingFileError:
            # The folder has just been removed: there is no pod.
            return None
    return None


def _stall(text: str) -> Stall | None:
    """None for a line in another format."""
    fields = dict(field.partition("=")[::2] for field in text.split())
    try:
        avg10, avg60, avg300 = (float(fields[name]) for name in ("avg10", "avg60", "avg300"))
        total = parse_count(fields["total"].encode())
    except (KeyError, ValueError):
        return None
    if total is None or not all(math.isfinite(each) and each >= 0 for each in (avg10, avg60, avg300)):
        return None
    return Stall(avg10, avg60, avg300, total)
