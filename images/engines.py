"""What builds images here: Docker, Podman or buildah, by their commands."""

from __future__ import annotations

import io
import shutil
import subprocess
import tarfile
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Final

_INSTALL: Final = "install Docker, Podman or buildah (apt-get install buildah), or name one that works with ENGINE="


class EngineError(Exception):
    """No engine works here, or one has failed."""


@dataclass(frozen=True, slots=True)
class Build:
    """What is built: the folder with the Dockerfile, its arguments, and options for the engine."""

    folder: Path
    arguments: Mapping[str, str]
    options: tuple[str, ...] = ()


class Engine(ABC):
    """A program that builds images. EngineError where it fails."""

    name: ClassVar[str]
    check: ClassVar[tuple[str, ...]]
    """Arguments with which it succeeds only where it can work."""

    def failing(self) -> str:
        """Why it cannot work here; empty if it can."""
        if shutil.which(self.name) is None:
            return "is not installed"
        done = subprocess.run([self.name, *self.check], capture_output=True, text=True, check=False)
        return "" if done.returncode == 0 else f"does not work ({done.stderr.strip()})"

    def build(self, build: Build, target: str, tag: str) -> None:
        """Build one target of the Dockerfile. The engine's own output is seen."""
        command = [self.name, "build", f"--target={target}", f"--tag={tag}"]
        command += [f"--build-arg={name}={value}" for name, value in build.arguments.items()]
        command += [*self._dated(build.arguments["SOURCE_DATE_EPOCH"]), *build.options, str(build.folder)]
        if (status := subprocess.run(command, check=False).returncode) != 0:
            raise EngineError(f"{' '.join(command)}: exit status {status}")

    def _dated(self, seconds: str) -> tuple[str, ...]:
        """Options that date the image, and with which what has not changed is not built again."""
        return ("--layers", f"--timestamp={seconds}")

    @abstractmethod
    def read(self, image: str, path: str) -> str:
        """The text of a file in an image."""

    def _output(self, *arguments: str) -> bytes:
        done = subprocess.run([self.name, *arguments], capture_output=True, check=False)
        if done.returncode != 0:
            raise EngineError(f"{self.name} {' '.join(arguments)}: {done.stderr.decode(errors='replace').strip()}")
        return done.stdout


class Podman(Engine):
    """Podman. Files are read from a container that is never started."""

    name = "podman"
    check = ("info",)

    def read(self, image: str, path: str) -> str:
        container = self._output("create", image).decode().strip()
        try:
            packed = self._output("cp", f"{container}:{path}", "-")
        finally:
            self._output("rm", container)
        with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
            file = archive.extractfile(archive.getmembers()[0])
            if file is None:
                raise EngineError(f"{image}: {path} is no file")
            return file.read().decode()


class Docker(Podman):
    """Docker, whose builder takes the date from the argument SOURCE_DATE_EPOCH. Its command alone builds nothing."""

    name = "docker"
    check = ("version",)

    def _dated(self, seconds: str) -> tuple[str, ...]:
        return ()


class Buildah(Engine):
    """buildah, which needs neither a daemon nor root."""

    name = "buildah"
    check = ("info",)

    def read(self, image: str, path: str) -> str:
        container = self._output("from", "--pull-never", image).decode().strip()
        try:
            code = f"import sys; sys.stdout.write(open({path!r}).read())"
            return self._output("run", container, "--", "/opt/koordinator/bin/python", "-c", code).decode()
        finally:
            self._output("rm", container)


ENGINES: Final[Mapping[str, Engine]] = {engine.name: engine for engine in (Docker(), Podman(), Buildah())}
"""In the order in which they are looked for."""


def chosen(name: str | None, engines: Mapping[str, Engine] = ENGINES) -> Engine:
    """The engine of this name, or the first that works. EngineError says of each why it does not."""
    reasons: dict[str, str] = {}
    for engine in engines.values() if name is None else (engines[name],):
        if not (reason := engine.failing()):
            return engine
        reasons[engine.name] = reason
    said = "; ".join(f"{each} {reason}" for each, reason in reasons.items())
    raise EngineError(f"{said}: {_INSTALL}")
