"""A kernel with core scheduling, built from Debian's sources: Debian's own has it switched off.

It has little else: what a program of the tests needs on a virtual machine that shares this machine's files.
"""

from __future__ import annotations

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


def kernel_with_core_scheduling() -> Path:
    """Skips the test where it cannot be built. KOORDINATOR_CORE_SCHEDULING_KERNEL names another one, a bzImage."""
    if named := os.environ.get("KOORDINATOR_CORE_SCHEDULING_KERNEL"):
        return Path(named)
    sources = sorted(_SOURCES.glob("linux-source-*.tar.*"))
    if not sources:
        pytest.skip(f"a kernel with core scheduling is built from sources that are not there: {_PACKAGES}")
    name = sources[-1].name.partition(".tar")[0]
    return built(f"{name}-core-scheduling", (_IMAGE,), lambda folder: _build(sources[-1], folder), _TOOLS) / _IMAGE


def _build(archive: Path, folder: Path) -> None:
    source = folder / "source"
    source.mkdir()
    _run("tar", "--extract", "--strip-components=1", f"--file={archive}", f"--directory={source}")
    options = [f"CONFIG_{name}=y" for name in _SWITCHED_ON.split()]
    options += [f"CONFIG_{name}=n" for name in _SWITCHED_OFF.split()]
    (source / "kernel/configs/core_scheduling.config").write_text("\n".join(options) + "\n")
    _run("make", f"--directory={source}", "tinyconfig", "core_scheduling.config")
    _run("make", f"--directory={source}", f"--jobs={os.cpu_count()}", _IMAGE)
    (source / "arch/x86/boot" / _IMAGE).rename(folder / _IMAGE)


def _run(*command: str) -> None:
    subprocess.run(command, capture_output=True, text=True, timeout=_LONGEST_BUILD, check=True)
