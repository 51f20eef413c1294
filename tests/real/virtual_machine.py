"""A virtual machine with Debian's own kernel, cgroup version 2 with all its controllers, and this machine's files.

QEMU emulates the processors in software, so that it works wherever it is installed; to boot takes ten seconds, and
programs run ten times slower. The root is this machine's, read-only by 9p; what is written stays in the memory of the
virtual machine. Unlike user-mode Linux (``cgroup2_kernel.py``) it has several CPUs, cpuset and pressure (PSI); it has
no disk and no network.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import lzma
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

_REPOSITORY = Path(__file__).resolve().parents[2]
_SECONDS = 1100
_MODULES = ("virtio_pci", "9pnet_virtio", "9p", "overlay")
_PACKAGES = "apt-get install qemu-system-x86 linux-image-amd64 busybox-static kmod"
_INIT = """#!/bin/busybox sh
for module in /modules/*; do /bin/busybox insmod $module; done
/bin/busybox mount -t 9p -o trans=virtio,version=9p2000.L,msize=524288,cache=loose,ro root /lower
/bin/busybox mount -t tmpfs tmpfs /written
/bin/busybox mkdir /written/upper /written/work
/bin/busybox mount -t overlay -o lowerdir=/lower,upperdir=/written/upper,workdir=/written/work overlay /root
/bin/busybox mount -t proc proc /root/proc
/bin/busybox mount -t sysfs sysfs /root/sys
/bin/busybox mount -t devtmpfs devtmpfs /root/dev
/bin/busybox mount -t tmpfs tmpfs /root/run
/bin/busybox mount -t cgroup2 cgroup2 /root/sys/fs/cgroup
/bin/busybox mount -t 9p -o trans=virtio,version=9p2000.L result /root/mnt
/bin/busybox ip link set lo up
/bin/busybox chroot /root /bin/sh /mnt/command
/bin/busybox poweroff -f
"""


def result_in_virtual_machine(module: str, cpus: int) -> dict[str, Any]:
    """The document that a program of the tests prints last, as root; skips the test where there is no such machine."""
    emulator, kernel, busybox = _programs()
    with tempfile.TemporaryDirectory(prefix="virtual-machine-") as name:
        folder = Path(name)
        initial = folder / "initial"
        initial.write_bytes(gzip.compress(_archive(_first_files(kernel, busybox)), 1))
        result = folder / "result"
        result.mkdir()
        (result / "command").write_text(_command(module))
        emulated = [emulator, "-accel", "tcg,thread=multi", "-cpu", "max", "-smp", str(cpus), "-m", "1536M"]
        boot = ["-kernel", str(kernel), "-initrd", str(initial), "-append", "console=ttyS0 quiet panic=-1 psi=1"]
        shares = [
            part
            for tag, path, options in (("root", "/", ",readonly=on,multidevs=remap"), ("result", str(result), ""))
            for part in ("-virtfs", f"local,path={path},mount_tag={tag},security_model=none{options}")
        ]
        command = [*emulated, *boot, *shares, "-nographic", "-no-reboot", "-net", "none"]
        with (folder / "console").open("wb") as console, contextlib.suppress(subprocess.TimeoutExpired):
            subprocess.run(
                command, stdin=subprocess.DEVNULL, stdout=console, stderr=console, timeout=_SECONDS, check=False
            )
        shown = (folder / "console").read_text(errors="replace")[-3000:]
        output = (result / "output").read_text(errors="replace") if (result / "output").exists() else ""
        assert (result / "status").exists(), f"the virtual machine did not end; its console:\n{shown}\n{output[-3000:]}"
        assert (result / "status").read_text().strip() == "0", output[-6000:]
        document: dict[str, Any] = json.loads(output.splitlines()[-1])
        return document


def _programs() -> tuple[str, Path, Path]:
    """The emulator, the newest kernel that has its modules here, and busybox."""
    emulator, busybox = shutil.which("qemu-system-x86_64"), shutil.which("busybox", path="/bin:/usr/bin")
    kernels = [path for path in Path("/boot").glob("vmlinuz-*") if Path("/lib/modules", _release(path)).is_dir()]
    if emulator is None or busybox is None or not kernels or shutil.which("modprobe", path=_SYSTEM_PATH) is None:
        pytest.skip(f"there is no virtual machine with a kernel of Debian: {_PACKAGES}")
    return emulator, max(kernels, key=lambda path: path.stat().st_mtime), Path(busybox)


_SYSTEM_PATH = "/usr/sbin:/sbin:/usr/bin:/bin"


def _release(kernel: Path) -> str:
    return kernel.name.removeprefix("vmlinuz-")


def _first_files(kernel: Path, busybox: Path) -> Mapping[str, bytes | None]:
    """What the kernel starts with: path -> content, or None for a folder."""
    folders = ("bin", "modules", "lower", "written", "root", "dev")
    files: dict[str, bytes | None] = dict.fromkeys(folders)
    files |= {"init": _INIT.encode(), "bin/busybox": busybox.read_bytes()}
    for number, path in enumerate(_modules(kernel)):
        content = path.read_bytes()
        files[f"modules/{number:02}.ko"] = lzma.decompress(content) if path.suffix == ".xz" else content
    return files


def _modules(kernel: Path) -> list[Path]:
    """In the order in which they are loaded; what is built into the kernel is none."""
    found: dict[Path, None] = {}
    for name in _MODULES:
        command = ["modprobe", "--show-depends", "--set-version", _release(kernel), name]
        environment = {**os.environ, "PATH": _SYSTEM_PATH}
        done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
        for line in done.stdout.splitlines():
            kind, _, path = line.strip().partition(" ")
            if kind == "insmod":
                found[Path(path.split()[0])] = None
    return list(found)


def _archive(files: Mapping[str, bytes | None]) -> bytes:
    """A cpio archive in the format ``newc`` of initial file systems."""
    parts = []
    for number, (name, content) in enumerate([*files.items(), ("TRAILER!!!", b"")], start=1):
        mode = 0o040755 if content is None else 0o100755
        fields = (number, mode, 0, 0, 1, 0, len(content or b""), 0, 0, 0, 0, len(name) + 1, 0)
        header = "070701" + "".join(f"{field:08x}" for field in fields)
        parts += [_padded(f"{header}{name}\0".encode()), _padded(content or b"")]
    return b"".join(parts)


def _padded(content: bytes) -> bytes:
    return content + b"\0" * (-len(content) % 4)


def _command(module: str) -> str:
    variables = {"PATH": os.environ["PATH"], "HOME": "/root", "LANG": "C.UTF-8"}
    exported = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in variables.items())
    program = shlex.join([sys.executable, "-m", module])
    return f"{exported}cd {shlex.quote(str(_REPOSITORY))}\n{program} > /mnt/output 2>&1\necho $? > /mnt/status\nsync\n"
