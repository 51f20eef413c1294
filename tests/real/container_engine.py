"""Engines of a test's own, with which `python -m images` builds the project's images by the Dockerfile as it is.

No registry is needed. The Dockerfile begins with an official image of Python; where a test runs there is perhaps none,
so what stands for it is made of Debian's packages: the same system with Python where ``python`` is found on the PATH.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest

from tests.real.polling import until
from tests.real.real_node import REPOSITORY

REGISTRY: Final = "registry.example/team"
_BASE: Final = "localhost/python:of-debian-slim"
"""Stands for the official image."""
_PACKAGES: Final = "ca-certificates,python3,python3-pip,python3-venv"
_SUITE: Final = "bookworm"
_OF_THIS_MACHINE: Final = ("etc/pip.conf", "etc/ssl/certs/ca-certificates.crt")
"""How packages are reached from here. They are in the stand-in, and so in the images that a test builds, which nobody
keeps."""
_SECONDS_OF_SYSTEM: Final = 600.0
_SECONDS_OF_BUILD: Final = 1800.0


@dataclass(frozen=True)
class ContainerEngine:
    """One of the engines, whose files are all in ``folder``. ``name`` is that of its command."""

    name: str
    folder: Path
    variables: Mapping[str, str] = field(default_factory=dict)
    """Of the environment of its command."""

    @property
    def bills(self) -> Path:
        """Where the bills of materials are written."""
        return self.folder / "sbom"

    def __call__(self, *arguments: str, seconds: float = 120) -> str:
        """What its command prints; AssertionError with its output if it fails."""
        return self._output([self.name, *arguments], seconds)

    def _output(self, command: list[str], seconds: float) -> str:
        done = subprocess.run(
            command,
            cwd=REPOSITORY,
            env={**os.environ, **self.variables},
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
        assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
        return done.stdout

    def run(self, image: str, *command: str) -> str:
        """What a command prints in a container of an image of Docker's, whose files cannot be changed."""
        program, *arguments = command
        options = ("--rm", "--network=none", "--read-only", f"--entrypoint={program}")
        return self("run", *options, image, *arguments)

    def settings(self, image: str) -> dict[str, Any]:
        """The configuration of an image of Docker's: User, Entrypoint, Labels."""
        (found,) = json.loads(self("image", "inspect", image))
        settings: dict[str, Any] = found["Config"]
        return settings

    def build(self, *names: str, options: tuple[str, ...] = ()) -> None:
        """Build images with `python -m images`, as `make images` does; all of them where none is named."""
        command = [sys.executable, "-m", "images", f"--engine={self.name}", f"--base={_BASE}", f"--registry={REGISTRY}"]
        command += [f"--bills={self.bills}", *(f"--build-option={each}" for each in ("--network=host", *options))]
        self._output([*command, *names], _SECONDS_OF_BUILD)

    def _import_base(self) -> None:
        packed = _packed_base(self.folder)
        if self.name == "buildah":
            container = self("from", "scratch").strip()
            self("add", container, str(packed), "/", seconds=600)
            self("commit", "--rm", container, _BASE, seconds=600)
        else:
            self("import", str(packed), _BASE, seconds=600)
        packed.unlink()


def _packed_base(folder: Path) -> Path:
    """A tar file of the system that stands for the official image."""
    system, packed = folder / "python", folder / "python.tar"
    bootstrap = ["debootstrap", "--variant=minbase", f"--include={_PACKAGES}", _SUITE, str(system)]
    done = subprocess.run(bootstrap, capture_output=True, text=True, timeout=_SECONDS_OF_SYSTEM, check=False)
    if done.returncode:
        pytest.skip(f"Debian's packages cannot be had: {done.stdout.strip()[-500:]}")
    (system / "usr/local/bin/python").symlink_to("/usr/bin/python3")
    for path in _OF_THIS_MACHINE:
        if Path("/", path).is_file():
            shutil.copyfile(Path("/", path), system / path)
    subprocess.run(["tar", "--create", "--file", str(packed), "--directory", str(system), "."], check=True)
    shutil.rmtree(system)
    return packed


@contextmanager
def container_engine() -> Iterator[ContainerEngine]:
    """dockerd, which neither makes a network nor changes the firewall, with the stand-in; skips the test where the
    machine lacks something. Nothing of it is left: its images are gigabytes."""
    _skip_without("dockerd", "docker", "debootstrap", package="docker.io")
    with tempfile.TemporaryDirectory(prefix="koordinator-engine-") as folder, _dockerd(Path(folder)) as engine:
        engine._import_base()
        yield engine


@contextmanager
def builder(name: str) -> Iterator[ContainerEngine]:
    """Podman or buildah, with files and the stand-in of its own."""
    _skip_without(name, "debootstrap", package=name)
    with tempfile.TemporaryDirectory(prefix="koordinator-engine-") as folder:
        settings = Path(folder, "storage.conf")
        settings.write_text(f'[storage]\ndriver = "overlay"\ngraphroot = "{folder}/data"\nrunroot = "{folder}/run"\n')
        # Without an OCI runtime, which needs more of the machine than a build does.
        variables = {"CONTAINERS_STORAGE_CONF": str(settings), "BUILDAH_ISOLATION": "chroot"}
        engine = ContainerEngine(name, Path(folder), variables)
        engine._import_base()
        yield engine


def _skip_without(*programs: str, package: str) -> None:
    if os.geteuid() != 0:
        pytest.skip("a container engine of the test's own needs root")
    if missing := [program for program in programs if shutil.which(program) is None]:
        pytest.skip(f"apt-get install {package} debootstrap: {missing[0]} is absent")


@contextmanager
def _dockerd(folder: Path) -> Iterator[ContainerEngine]:
    # The classic builder is part of dockerd; BuildKit's needs a plugin of the command.
    variables = {"DOCKER_HOST": f"unix://{folder}/docker.sock", "DOCKER_BUILDKIT": "0"}
    engine = ContainerEngine("docker", folder, variables)
    command = [
        *("dockerd", f"--host={variables['DOCKER_HOST']}", f"--pidfile={folder}/docker.pid"),
        *(f"--data-root={folder}/data", f"--exec-root={folder}/run"),
        *("--bridge=none", "--iptables=false", "--ip6tables=false"),
    ]
    log = folder / "docker.log"
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output)
    try:

        def is_up() -> bool:
            assert process.poll() is None, log.read_text(errors="replace")[-2000:]
            return (folder / "docker.sock").exists() and _is_up(engine)

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
        engine("info")
    except AssertionError:
        return False
    return True
