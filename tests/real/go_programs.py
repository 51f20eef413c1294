"""Programs that are built from source, most of them with Go, once for each user of a machine.

They stay in a folder below the temporary one. Its name can be guessed, and everybody may write beside it: what others
could have put there is not run.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import pytest


def built(name: str, programs: Sequence[str], build: Callable[[Path], None], tools: Sequence[str] = ("go",)) -> Path:
    """The folder with ``programs``, which ``build`` puts into the folder that it is given; skips the test where they
    cannot be built. ``name`` has what is built and its version; it takes ``tools``."""
    folder = Path(tempfile.gettempdir()) / f"koordinator-{name}-{os.geteuid()}"
    make_private(folder)
    with (folder / "lock").open("w") as lock:
        # Workers of one run, and other runs, wait for the one that builds.
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not all((folder / program).is_file() for program in programs):
            if missing := [tool for tool in tools if shutil.which(tool) is None]:
                pytest.skip(f"{name} is built with {' and '.join(missing)}, which is absent")
            _build(name, folder, programs, build)
    return folder


def make_private(folder: Path) -> None:
    """Creates the folder; raises PermissionError where there is something that another user made or may change."""
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) & 0o077:
        raise PermissionError(
            f"{folder} is not run from: it must be a folder of this user's, with mode 0700; remove it"
        )


def go(*arguments: str, seconds: float, **variables: str) -> str:
    """What a command of Go's prints. Raises subprocess.CalledProcessError and TimeoutExpired."""
    done = subprocess.run(
        ["go", *arguments],
        env={**os.environ, "CGO_ENABLED": "0", **variables},
        cwd=tempfile.gettempdir(),
        capture_output=True,
        text=True,
        timeout=seconds,
        check=True,
    )
    return done.stdout


def _build(name: str, folder: Path, programs: Sequence[str], build: Callable[[Path], None]) -> None:
    try:
        with tempfile.TemporaryDirectory(dir=folder) as made:
            build(Path(made))
            for program in programs:
                Path(made, program).rename(folder / program)
    except subprocess.TimeoutExpired as error:
        pytest.skip(f"{name} was not built within {error.timeout:.0f} s")
    except subprocess.CalledProcessError as error:
        # Without the module proxy, for one, which is said in the JSON of `go mod download`.
        pytest.skip(f"{name} cannot be built: {(error.stderr or error.stdout).strip()[-500:]}")
