"""One koord a data folder."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from koordinator.cli.data_folder import DataFolderInUse, lock_data_folder


def test_a_second_user_is_refused_with_the_holder_named(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    with (
        lock_data_folder(folder),
        pytest.raises(DataFolderInUse, match=f"process {os.getpid()}.*--data"),
        lock_data_folder(folder),
    ):
        pass


def test_the_folder_is_free_again_afterwards(tmp_path: Path) -> None:
    with lock_data_folder(tmp_path):
        pass
    with lock_data_folder(tmp_path):
        pass


def test_the_folder_is_for_its_owner_only(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    with lock_data_folder(folder):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
