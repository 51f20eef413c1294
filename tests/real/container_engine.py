"""A Docker of the test's own, and the project's image, which it builds with the Dockerfile as it is.

No registry is needed. The Dockerfile begins with an official image of Python; where a test runs there is perhaps none,
so what stands for it is made of Debian's packages: the same system with Python where ``python`` is found on the PATH.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from tests.real.polling import until
from tests.real.real_node import REPOSITORY

_PYTHON: Final = "of-debian"
"""The tag of the image that stands for the official one is ``python:of-debian-slim``."""
_PACKAGES: Final = "ca-certificates,python3,python3-pip,python3-venv"
_SUITE: Final = "bookworm"
_OF_THIS_MACHINE: Final = ("etc/pip.conf", "etc/ssl/certs/ca-certificates.crt")
"""How packages are reached from here. They are in the stand-in, and so in the image that a test builds, which nobody
keeps."""
_SECONDS_OF_SYSTEM: Final = 600.0
_SECONDS_OF_BUILD: Final = 900.0


@dataclass(frozen=True)
class ContainerEngine:
    """``folder`` has dockerd's files and everything else."""

    folder: Path

    @property
    def socket(self) -> Path:
        return self.folder / "docker.sock"

    def docker(self, *arguments: str, seconds: float = 120) -> str:
        """What it prints; AssertionError with its output if it fails."""
        command = ["docker", "--host", f"unix://{self.socket}", *arguments]
        # The classic builder is part of dockerd; BuildKit's needs a plugin of the command.
        variables = {**os.environ, "DOCKER_BUILDKIT": "0"}
        done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=seconds, check=False)
        assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
        return done.stdout

    def run(self, image: str, *command: str) -> str:
        """What a command prints in a container of the image, whose files cannot be changed."""
        return self.docker("run", "--rm", "--network=none", "--read-only", image, *command)

    def build(self, tag: str, **arguments: str) -> None:
        """Build the project's image. ``arguments`` are those of the Dockerfile."""
        self._import_python(self.folder / "python")
        options = [f"--build-arg={name}={value}" for name, value in {"PYTHON": _PYTHON, **arguments}.items()]
        self.docker("build", "--network=host", f"--tag={tag}", *options, str(REPOSITORY), seconds=_SECONDS_OF_BUILD)

    def _import_python(self, system: Path) -> None:
        if system.exists():
            return
        bootstrap = ["debootstrap", "--variant=minbase", f"--include={_PACKAGES}", _SUITE, str(system)]
        done = subprocess.run(bootstrap, capture_output=True, text=True, timeout=_SECONDS_OF_SYSTEM, check=False)
        if done.returncode:
            pytest.skip(f"Debian's packages cannot be had: {done.stdout.strip()[-500:]}")
        (system / "usr/local/bin/python").symlink_to("/usr/bin/python3")
        for path in _OF_THIS_MACHINE:
            if Path("/", path).is_file():
                shutil.copyfile(Path("/", path), system / path)
        packed = self.folder / "python.tar"
        subprocess.run(["tar", "--create", "--file", str(packed), "--directory", str(system), "."], check=True)
        self.docker("import", str(packed), f"python:{_PYTHON}-slim")
        packed.unlink()


@contextmanager
def container_engine() -> Iterator[ContainerEngine]:
    """dockerd, which neither makes a network nor changes the firewall; skips the test where the machine lacks
    something. Nothing of it is left: its images are gigabytes."""
    if os.geteuid() != 0:
        pytest.skip("a container engine of the test's own needs root")
    if missing := [program for program in ("dockerd", "docker", "debootstrap") if shutil.which(program) is None]:
        pytest.skip(f"apt-get install docker.io debootstrap: {missing[0]} is absent")
    with tempfile.TemporaryDirectory(prefix="koordinator-engine-") as folder, _dockerd(Path(folder)) as engine:
        yield engine


@contextmanager
def _dockerd(folder: Path) -> Iterator[ContainerEngine]:
    engine = ContainerEngine(folder)
    command = [
        *("dockerd", f"--host=unix://{engine.socket}", f"--pidfile={folder}/docker.pid"),
        *(f"--data-root={folder}/data", f"--exec-root={folder}/run"),
        *("--bridge=none", "--iptables=false", "--ip6tables=false"),
    ]
    log = folder / "docker.log"
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output)
    try:

        def is_up() -> bool:
            assert process.poll() is None, log.read_text(errors="replace")[-2000:]
            return engine.socket.exists() and _is_up(engine)

        until(is_up, 60, "dockerd")
        yield engine
    finally:
        process.terminate()
        process.wait(30)
        # Such as the network namespace of containers without one.
        mounted = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
        for point in reversed([each for each in mounted if each.startswith(f"{folder}/")]):
            subprocess.run(["umount", point], check=False)


def _is_up(engine: ContainerEngine) -> bool:
    try:
        engine.docker("info")
    except AssertionError:
        return False
    return True
