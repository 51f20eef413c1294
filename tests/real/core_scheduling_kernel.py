"""A kernel with core scheduling, built from Debian's sources: Debian's own has it switched off.

It has little else: what a program of the tests needs on a virtual machine that shares this machine's files.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
from pathlib import Path

import pytest

from tests.real.go_programs import built

_SOURCES = Path("/usr/src")
_PACKAGES = "apt-get install linux-source flex bison bc libelf-dev gcc make"
_TOOLS = ("gcc", "make", "flex", "bison", "bc")
_IMAGE = "bzImage"
_LONGEST_BUILD = 2400.0
"""Seconds; it takes ten minutes on two CPUs."""
_SWITCHED_ON = """
    64BIT SMP SCHED_SMT SCHED_CORE X86_LOCAL_APIC ACPI PCI HYPERVISOR_GUEST PARAVIRT KVM_GUEST
    PRINTK BUG TTY SERIAL_8250 SERIAL_8250_CONSOLE BLK_DEV_INITRD RD_GZIP BINFMT_ELF BINFMT_SCRIPT MULTIUSER
    POSIX_TIMERS HIGH_RES_TIMERS NO_HZ_IDLE FUTEX EPOLL SIGNALFD TIMERFD EVENTFD AIO ADVISE_SYSCALLS MEMBARRIER RSEQ
    FILE_LOCKING SHMEM SYSFS PROC_FS PROC_SYSCTL DEVTMPFS TMPFS INOTIFY_USER OVERLAY_FS
    CGROUPS CGROUP_SCHED FAIR_GROUP_SCHED CFS_BANDWIDTH CPUSETS CGROUP_CPUACCT CGROUP_PIDS MEMCG PSI NAMESPACES
    NET UNIX INET VIRTIO_MENU VIRTIO_PCI NETWORK_FILESYSTEMS NET_9P NET_9P_VIRTIO 9P_FS
"""
"""Besides what the kernel's own ``tinyconfig`` has."""
_SWITCHED_OFF = "CPU_MITIGATIONS MODULES BLOCK"
_DIGITS = 12
"""Of the digest of what a kernel is built from."""


def kernel_with_core_scheduling() -> Path:
    """Skips the test where it cannot be built. KOORDINATOR_CORE_SCHEDULING_KERNEL names another one, a bzImage."""
    if named := os.environ.get("KOORDINATOR_CORE_SCHEDULING_KERNEL"):
        return Path(named)
    archive = max(_SOURCES.glob("linux-source-*.tar.*"), key=lambda path: path.stat().st_mtime, default=None)
    if archive is None:
        pytest.skip(f"a kernel with core scheduling is built from sources that are not there: {_PACKAGES}")
    return built(_name(archive), (_IMAGE,), lambda folder: _build(archive, folder), _TOOLS) / _IMAGE


def _name(archive: Path) -> str:
    """Another one for other sources and other options, so that no kernel is kept that differs from what it names."""
    found = archive.stat()
    built_from = f"{found.st_size} {found.st_mtime_ns}\n{_options()}"
    digest = hashlib.sha256(built_from.encode()).hexdigest()[:_DIGITS]
    return f"{archive.name.partition('.tar')[0]}-core-scheduling-{digest}"


def _options() -> str:
    options = [f"CONFIG_{name}=y" for name in _SWITCHED_ON.split()]
    options += [f"CONFIG_{name}=n" for name in _SWITCHED_OFF.split()]
    return "\n".join(options) + "\n"


def _build(archive: Path, folder: Path) -> None:
    source = folder / "source"
    source.mkdir()
    _run("tar", "--extract", "--strip-components=1", f"--file={archive}", f"--directory={source}")
    (source / "kernel/configs/core_scheduling.config").write_text(_options())
    _run("make", f"--directory={source}", "tinyconfig", "core_scheduling.config")
    _run("make", f"--directory={source}", f"--jobs={os.cpu_count()}", _IMAGE)
    (source / "arch/x86/boot" / _IMAGE).rename(folder / _IMAGE)


def _run(*command: str) -> None:
    subprocess.run(command, capture_output=True, text=True, timeout=_LONGEST_BUILD, check=True)
