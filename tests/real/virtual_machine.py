"""A virtual machine with Debian's own kernel, cgroup version 2 with all its controllers, and this machine's files.

QEMU emulates the processors in software, so that it works wherever it is installed; to boot takes ten seconds, and
programs run ten times slower. The root is this machine's, read-only by 9p; what is written stays in the memory of the
virtual machine. Unlike user-mode Linux (``cgroup2_kernel.py``) it has several CPUs, cpuset and pressure (PSI). Where
that is wanted, it has this machine's loopback as its network, and a disk of nothing but zeros.
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
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.real.control_plane import end_with_parent

_REPOSITORY = Path(__file__).resolve().parents[2]
_SECONDS = 1100
_BOOT = "console=ttyS0 quiet panic=-1 psi=1 net.ifnames=0"
_SYSTEMD = "/lib/systemd/systemd"
_MODULES = ("virtio_pci", "9pnet_virtio", "9p", "overlay")
_NETWORK_MODULES = ("virtio_net",)
_DISK_MODULES = ("virtio_blk",)
_PACKAGES = "apt-get install qemu-system-x86 linux-image-amd64 busybox-static kmod"
_INIT = """#!/bin/busybox sh
for module in /modules/*.ko; do [ -e $module ] && /bin/busybox insmod $module; done
/bin/busybox mount -t 9p -o trans=virtio,version=9p2000.L,msize=524288,cache=loose,ro root /lower
/bin/busybox mount -t tmpfs tmpfs /written
/bin/busybox mkdir /written/upper /written/work
/bin/busybox mount -t overlay -o lowerdir=/lower,upperdir=/written/upper,workdir=/written/work overlay /root
/bin/busybox mount -t proc proc /root/proc
/bin/busybox mount -t sysfs sysfs /root/sys
/bin/busybox mount -t devtmpfs devtmpfs /root/dev
/bin/busybox mount -t tmpfs tmpfs /root/run
/bin/busybox mount -t 9p -o trans=virtio,version=9p2000.L result /root/mnt
/bin/busybox ip link set lo up
"""
_NETWORK = """/bin/busybox ip address add 10.0.2.15/24 dev eth0
/bin/busybox ip link set eth0 up
"""
HERE = "10.0.2.2"
"""This machine's loopback, as a virtual machine with a network has it."""
_AS_ONLY_PROGRAM = """/bin/busybox ln -s /proc/self/fd /root/dev/fd
for pair in 0:stdin 1:stdout 2:stderr; do /bin/busybox ln -s fd/${pair%:*} /root/dev/${pair#*:}; done
/bin/busybox mount -t cgroup2 cgroup2 /root/sys/fs/cgroup
/bin/busybox chroot /root /bin/sh /mnt/command
/bin/busybox poweroff -f
"""
_AS_SERVICE = f"""/bin/busybox mkdir -p /root/run/systemd/system
/bin/busybox cp /root/mnt/*.service /root/mnt/*.socket /root/run/systemd/system/
exec /bin/busybox switch_root /root {_SYSTEMD} --unit=program.service
"""
_UNITS = {
    "program.service": """[Unit]
DefaultDependencies=no
SuccessAction=poweroff-force
FailureAction=poweroff-force
Requires=dbus.service
After=dbus.service
[Service]
Type=oneshot
ExecStart=/bin/sh /mnt/command
StandardOutput=null
StandardError=null
Delegate=yes
""",
    # Debian's own wait for what a whole system starts.
    "dbus.socket": """[Unit]
DefaultDependencies=no
[Socket]
ListenStream=/run/dbus/system_bus_socket
""",
    "dbus.service": """[Unit]
DefaultDependencies=no
Requires=dbus.socket
[Service]
Type=notify
ExecStart=/usr/bin/dbus-daemon --system --address=systemd: --nofork --nopidfile --systemd-activation
StandardOutput=null
StandardError=null
""",
}


@dataclass(frozen=True)
class VirtualMachine:
    """``numa_nodes`` share the CPUs and the memory evenly. ``has_systemd``: systemd is the first process, with a bus,
    and the program one of its services; nothing else runs. ``has_disk``: ``/dev/vda``. A core has as many ``threads``.
    ``kernel``: another one than Debian's, which has everything built in."""

    cpus: int
    megabytes: int = 1536
    numa_nodes: int = 1
    has_network: bool = False
    has_systemd: bool = False
    has_disk: bool = False
    threads: int = 1
    kernel: Path | None = None

    @property
    def options(self) -> list[str]:
        """Of the emulator."""
        processors = f"{self.cpus},sockets={self.numa_nodes},threads={self.threads}"
        found = ["-accel", "tcg,thread=multi", "-cpu", "max", "-smp", processors, "-m", f"{self.megabytes}M"]
        for number in range(self.numa_nodes) if self.numa_nodes > 1 else ():
            size, count = self.megabytes // self.numa_nodes, self.cpus // self.numa_nodes
            cpus = f"{number * count}-{(number + 1) * count - 1}"
            found += ["-object", f"memory-backend-ram,id=memory{number},size={size}M"]
            found += ["-numa", f"node,nodeid={number},cpus={cpus},memdev=memory{number}"]
        if self.has_disk:
            found += ["-blockdev", f"null-co,node-name=disk,size={1 << 30},read-zeroes=on"]
            found += ["-device", "virtio-blk-pci,drive=disk"]
        if not self.has_network:
            return [*found, "-net", "none"]
        return [*found, "-netdev", "user,id=here", "-device", "virtio-net-pci,netdev=here,romfile="]


@dataclass(frozen=True)
class Booted:
    """A virtual machine that runs a program. ``shared`` is /mnt there."""

    process: subprocess.Popen[bytes]
    shared: Path
    console: Path

    @property
    def output(self) -> str:
        """What the program has printed."""
        path = self.shared / "output"
        return path.read_text(errors="replace") if path.exists() else ""

    def failure(self) -> str:
        """What there is to see of a machine that has not done what it should."""
        return f"the console:\n{self.console.read_text(errors='replace')[-3000:]}\n{self.output[-3000:]}"


@contextlib.contextmanager
def booted(machine: VirtualMachine, module: str, *arguments: str) -> Iterator[Booted]:
    """A machine that runs a program of the tests, as root; skips the test where there is no such machine."""
    emulator, kernel, busybox = _programs(machine.kernel)
    if machine.has_systemd and not (Path(_SYSTEMD).exists() and shutil.which("dbus-daemon")):
        pytest.skip("there is no systemd with a bus: apt-get install systemd dbus")
    with tempfile.TemporaryDirectory(prefix="virtual-machine-") as name:
        folder = Path(name)
        initial, shared = folder / "initial", folder / "shared"
        initial.write_bytes(gzip.compress(_archive(_first_files(kernel, busybox, machine)), 1))
        shared.mkdir()
        (shared / "command").write_text(_command(module, arguments))
        for unit, text in _UNITS.items():
            (shared / unit).write_text(text)
        boot = ["-kernel", str(kernel), "-initrd", str(initial), "-append", _BOOT]
        shares = [
            part
            for tag, path, options in (("root", "/", ",readonly=on,multidevs=remap"), ("result", str(shared), ""))
            for part in ("-virtfs", f"local,path={path},mount_tag={tag},security_model=none{options}")
        ]
        command = [emulator, *machine.options, *boot, *shares, "-nographic", "-no-reboot"]
        with (folder / "console").open("wb") as console:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=console,
                preexec_fn=end_with_parent,
            )
        try:
            yield Booted(process, shared, folder / "console")
        finally:
            process.kill()
            process.wait()


def result_in_virtual_machine(module: str, machine: VirtualMachine) -> dict[str, Any]:
    """The document that a program of the tests prints last."""
    with booted(machine, module) as there:
        with contextlib.suppress(subprocess.TimeoutExpired):
            there.process.wait(_SECONDS)
        status = there.shared / "status"
        assert status.exists(), f"the virtual machine did not end; {there.failure()}"
        assert status.read_text().strip() == "0", there.output[-6000:]
        document: dict[str, Any] = json.loads(there.output.splitlines()[-1])
        return document


def _programs(kernel: Path | None) -> tuple[str, Path, Path]:
    """The emulator, the kernel or the newest one that has its modules here, and busybox."""
    emulator, busybox = shutil.which("qemu-system-x86_64"), shutil.which("busybox", path="/bin:/usr/bin")
    debian = [path for path in Path("/boot").glob("vmlinuz-*") if Path("/lib/modules", _release(path)).is_dir()]
    kernels = debian if kernel is None else [kernel]
    if emulator is None or busybox is None or not kernels or shutil.which("modprobe", path=_SYSTEM_PATH) is None:
        pytest.skip(f"there is no virtual machine with a kernel of Debian: {_PACKAGES}")
    return emulator, max(kernels, key=lambda path: path.stat().st_mtime), Path(busybox)


_SYSTEM_PATH = "/usr/sbin:/sbin:/usr/bin:/bin"


def _release(kernel: Path) -> str:
    return kernel.name.removeprefix("vmlinuz-")


def _first_files(kernel: Path, busybox: Path, machine: VirtualMachine) -> Mapping[str, bytes | None]:
    """What the kernel starts with: path -> content, or None for a folder."""
    folders = ("bin", "modules", "lower", "written", "root", "dev")
    files: dict[str, bytes | None] = dict.fromkeys(folders)
    network = _NETWORK if machine.has_network else ""
    init = _INIT + network + (_AS_SERVICE if machine.has_systemd else _AS_ONLY_PROGRAM)
    files |= {"init": init.encode(), "bin/busybox": busybox.read_bytes()}
    names = _MODULES + (_NETWORK_MODULES if machine.has_network else ())
    names += _DISK_MODULES if machine.has_disk else ()
    for number, path in enumerate([] if machine.kernel else _modules(kernel, names)):
        content = path.read_bytes()
        files[f"modules/{number:02}.ko"] = lzma.decompress(content) if path.suffix == ".xz" else content
    return files


def _modules(kernel: Path, names: Sequence[str]) -> list[Path]:
    """In the order in which they are loaded; what is built into the kernel is none."""
    found: dict[Path, None] = {}
    for name in names:
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


def _command(module: str, arguments: Sequence[str]) -> str:
    variables = {"PATH": os.environ["PATH"], "HOME": "/root", "LANG": "C.UTF-8"}
    exported = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in variables.items())
    program = shlex.join([sys.executable, "-m", module, *arguments])
    return f"{exported}cd {shlex.quote(str(_REPOSITORY))}\n{program} > /mnt/output 2>&1\necho $? > /mnt/status\nsync\n"
