"""Pressure stall information (PSI): for what share of the time tasks waited for CPU, memory or I/O."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from koordinator.node.cgroup_layout import HYBRID, CgroupLayout, CgroupVersion
from koordinator.node.errors import MalformedFileError, MissingFileError, Unavailable, UnreadableFileError
from koordinator.node.host import Host, exists, read_file

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


def parse_pressure(path: str, content: bytes) -> Pressure:
    """The content of a ``*.pressure`` file; MalformedFileError if the line ``some`` is absent or a line is another."""
    stalls = {}
    for line in content.decode("ascii", errors="replace").splitlines():
        kind, _, rest = line.partition(" ")
        if kind not in ("some", "full"):
            raise MalformedFileError(path, f"{line[:40]!r} begins with neither some nor full")
        stalls[kind] = _stall(path, rest)
    if "some" not in stalls:
        raise MalformedFileError(path, "has no line some")
    return Pressure(stalls["some"], stalls.get("full"))


def pressure_of_machine(host: Host) -> dict[str, Pressure] | Unavailable:
    """The pressure of the whole machine by resource; Unavailable if this kernel does not measure it."""
    try:
        return {resource: _read(f"{host.proc}/pressure/{resource}") for resource in RESOURCES}
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
        if not exists(cgroup_pressure_path(layout, layout.kubepods, resource)):
            return Unavailable(
                f"{folder} has no {resource}.pressure",
                "cgroup version 2 with CONFIG_PSI=y, also beside version 1, or Anolis OS",
            )
    return None


def _read(path: str) -> Pressure:
    return parse_pressure(path, read_file(path))


def _stall(path: str, text: str) -> Stall:
    fields = dict(field.partition("=")[::2] for field in text.split())
    try:
        return Stall(float(fields["avg10"]), float(fields["avg60"]), float(fields["avg300"]), int(fields["total"]))
    except (KeyError, ValueError):
        raise MalformedFileError(path, f"{text[:80]!r} is not avg10=… avg60=… avg300=… total=…") from None
