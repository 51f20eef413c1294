"""The files that a release consists of: wheel, sdist and chart, and SHA256SUMS of them.

They are built from a commit and from nothing that lies about in a checkout, twice, and have the same bytes both times:
whoever has the commit can tell that they were made of it. Their times are those of the commit.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from release import version
from release.errors import ReleaseError

SUMS: Final = "SHA256SUMS"
_CHART: Final = Path("charts/koordinator")
_FORMS: Final = ("koordinator-*.whl", "koordinator-*.tar.gz", "koordinator-*.tgz")
"""The names of what is built, of whatever version."""


def build_commit(checkout: Path, commit: str, folder: Path) -> list[Path]:
    """Build what the commit makes into ``folder``. ReleaseError if a second build differs."""
    epoch = int(git(checkout, "log", "-1", "--format=%ct", commit))
    with tempfile.TemporaryDirectory(prefix="koordinator-release-") as scratch:
        built = []
        for name in ("first", "second"):
            source = Path(scratch) / name / "source"
            _export(checkout, commit, source)
            built.append(build(source, Path(scratch) / name / "dist", epoch))
        first, second = ([(path.name, path.read_bytes()) for path in paths] for paths in built)
        if first != second:
            differing = {name for name, _ in set(first) ^ set(second)}
            raise ReleaseError(f"two builds of {commit} differ: {', '.join(sorted(differing))}")
        folder.mkdir(parents=True, exist_ok=True)
        # Of an earlier build, and of nothing else that the folder may have.
        named = {name for name, _ in first}
        for stale in (path for form in _FORMS for path in folder.glob(form) if path.name not in named):
            stale.unlink()
        for name, data in first:
            (folder / name).write_bytes(data)
    return [folder / name for name, _ in first]


def build(source: Path, folder: Path, epoch: int) -> list[Path]:
    """Build what the files at ``source`` make, dated ``epoch`` (seconds since 1970), with the build tools that are
    installed here: those of requirements/dev.txt."""
    folder.mkdir(parents=True)
    command = [sys.executable, "-m", "hatchling", "build", "--directory", str(folder)]
    environment = os.environ | {"SOURCE_DATE_EPOCH": str(epoch)}
    ended = subprocess.run(command, cwd=source, env=environment, capture_output=True, text=True, check=False)
    if ended.returncode:
        raise ReleaseError(f"hatchling has failed:\n{ended.stdout}{ended.stderr}")
    chart = folder / f"koordinator-{version.current(source)}.tgz"
    chart.write_bytes(_packed(source / _CHART, epoch))
    paths = sorted(folder.iterdir())
    (folder / SUMS).write_text(sums(paths))
    return [*paths, folder / SUMS]


def sums(paths: Iterable[Path]) -> str:
    """In the format of sha256sum."""
    return "".join(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in paths)


def git(checkout: Path, *arguments: str) -> str:
    """What git prints. ReleaseError if it fails."""
    ended = subprocess.run(["git", "-C", str(checkout), *arguments], capture_output=True, text=True, check=False)
    if ended.returncode:
        raise ReleaseError(f"git {' '.join(arguments)}: {ended.stderr.strip()}")
    return ended.stdout.strip()


def _export(checkout: Path, commit: str, source: Path) -> None:
    command = ["git", "-C", str(checkout), "archive", "--format=tar", commit]
    archived = subprocess.run(command, capture_output=True, check=False)
    if archived.returncode:
        raise ReleaseError(f"git archive {commit}: {archived.stderr.decode().strip()}")
    with tarfile.open(fileobj=io.BytesIO(archived.stdout)) as archive:
        archive.extractall(source, filter="data")


def _packed(chart: Path, epoch: int) -> bytes:
    """As `helm package` packs it, but with the same bytes each time."""
    packed = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=packed, mode="wb", mtime=epoch) as compressed,
        tarfile.open(fileobj=compressed, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for path in sorted(path for path in chart.rglob("*") if path.is_file()):
            data = path.read_bytes()
            member = tarfile.TarInfo(f"{chart.name}/{path.relative_to(chart).as_posix()}")
            member.size, member.mtime, member.mode = len(data), epoch, 0o644
            archive.addfile(member, io.BytesIO(data))
    return packed.getvalue()
