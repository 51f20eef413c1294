"""The virtual environments of the images: the locked requirements and our package, less what no program loads."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from images.system_files import compile_modules

ENVIRONMENT: Final = Path("/opt/koordinator")
"""Where it lies in an image as well: scripts name its interpreter."""
_PIP: Final = ("pip", "--python", str(ENVIRONMENT), "install", "--quiet", "--no-compile")
_PACKAGE: Final = "koordinator"
_NOT_LOADED: Final = re.compile(r"(^|/)(tests|include)/|\.(a|c|h|pxd|pyi|pyx)$")
"""Tests, and what other packages are compiled with."""


def site_packages() -> Path:
    (folder,) = ENVIRONMENT.glob("lib/python*/site-packages")
    return folder


def create(requirements: Path, wheel: Path) -> dict[str, str]:
    """Install both into a new environment. Returns distribution -> SHA-256 of the wheel that it was installed from."""
    shutil.rmtree(ENVIRONMENT, ignore_errors=True)
    base = Path(sys.base_prefix, "bin/python3")
    subprocess.run([base, "-m", "venv", "--without-pip", ENVIRONMENT], check=True)
    hashes = _install_locked(requirements)
    subprocess.run([*_PIP, "--no-deps", "--no-index", wheel], check=True)
    hashes[_PACKAGE] = hashlib.sha256(wheel.read_bytes()).hexdigest()
    for script in (ENVIRONMENT / "bin").iterdir():
        if not script.name.startswith(("python", "ko", "kubectl")):
            script.unlink()
    _reduce(site_packages())
    compile_modules(ENVIRONMENT)
    return hashes


def _install_locked(requirements: Path) -> dict[str, str]:
    report = Path("/tmp/installed.json")  # noqa: S108 - of the stage that builds, which nobody else is in
    command = [*_PIP, "--require-hashes", "--only-binary=:all:", f"--report={report}", f"--requirement={requirements}"]
    subprocess.run(command, check=True)
    installed: list[dict[str, Any]] = json.loads(report.read_text())["install"]
    return {
        canonical(each["metadata"]["name"]): each["download_info"]["archive_info"]["hashes"]["sha256"]
        for each in installed
    }


def canonical(name: str) -> str:
    """The name of a distribution as indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _reduce(site: Path) -> None:
    """Remove what is not loaded, and debugging symbols. Each distribution's list of files says so."""
    for record in site.glob("*.dist-info/RECORD"):
        # Libraries that a wheel brings along are changed by the tool that put them there, and not again here.
        may_strip = not (site / f"{record.parent.name.partition('-')[0]}.libs").exists()
        for path in (site / row[0] for row in _rows(record)):
            if _NOT_LOADED.search(path.relative_to(site).as_posix() if path.is_relative_to(site) else ""):
                path.unlink(missing_ok=True)
            elif may_strip and path.suffix == ".so":
                subprocess.run(["strip", "--strip-unneeded", str(path)], check=True)
        _write_record(record, site)
    for folder in sorted((path for path in site.rglob("*") if path.is_dir()), reverse=True):
        if not any(folder.iterdir()):
            folder.rmdir()


def keep_of_package(site: Path, packages: Iterable[str]) -> None:
    """Remove the subpackages of koordinator that are not named."""
    for folder in (site / _PACKAGE).iterdir():
        if folder.is_dir() and folder.name not in {"__pycache__", *packages}:
            shutil.rmtree(folder)
    (record,) = site.glob(f"{_PACKAGE}-*.dist-info/RECORD")
    _write_record(record, site)


def _rows(record: Path) -> list[list[str]]:
    return list(csv.reader(record.read_text().splitlines()))


def _write_record(record: Path, site: Path) -> None:
    """What is left of the files that were installed, with their hashes."""
    written = io.StringIO()
    rows = csv.writer(written, lineterminator="\n")
    for name, *described in _rows(record):
        path = site / name
        if not path.exists():
            continue
        if path.suffix == ".so":
            content = path.read_bytes()
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
            described = [f"sha256={digest}", str(len(content))]
        rows.writerow([name, *described])
    record.write_text(written.getvalue())


def split(target: Path, program: Path) -> None:
    """Move the environment below ``target``, but for our package and its commands, which go below ``program``."""
    site = site_packages().relative_to("/")
    bin_folder = ENVIRONMENT.relative_to("/") / "bin"
    shutil.copytree(ENVIRONMENT, target / ENVIRONMENT.relative_to("/"), symlinks=True)
    for folder in (site, bin_folder):
        (program / folder).mkdir(parents=True)
    ours = [
        *(target / site).glob(f"{_PACKAGE}*"),
        *(target / bin_folder).glob("ko*"),
        *(target / bin_folder).glob("kub*"),
    ]
    for path in ours:
        shutil.move(path, program / path.relative_to(target))


def set_times(root: Path, seconds: int) -> None:
    """Of every file, so that the same content is the same layer."""
    for folder, folders, files in os.walk(root):
        for name in (*folders, *files):
            os.utime(Path(folder, name), (seconds, seconds), follow_symlinks=False)
    os.utime(root, (seconds, seconds))
