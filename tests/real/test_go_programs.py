"""The folder below the temporary one from which a built program is run, as root: nobody else may have written it."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from tests.real.go_programs import make_private


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "containerd"


def test_only_its_owner_may_use_it_whatever_the_umask(folder: Path) -> None:
    umask = os.umask(0)
    try:
        make_private(folder)
    finally:
        os.umask(umask)

    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_one_that_was_made_private_is_taken_again(folder: Path) -> None:
    make_private(folder)
    (folder / "containerd").touch()

    make_private(folder)

    assert (folder / "containerd").exists()


@pytest.mark.parametrize("mode", [0o770, 0o702, 0o755])
def test_one_that_others_can_enter_is_refused(folder: Path, mode: int) -> None:
    folder.mkdir()
    folder.chmod(mode)

    with pytest.raises(PermissionError, match="0700"):
        make_private(folder)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_one_of_another_user_is_refused(folder: Path) -> None:
    folder.mkdir(mode=0o700)
    os.chown(folder, 65534, 65534)

    with pytest.raises(PermissionError):
        make_private(folder)


def test_a_link_to_a_private_folder_is_refused(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    folder.symlink_to(tmp_path / "elsewhere")

    with pytest.raises(PermissionError):
        make_private(folder)
