"""One koord a data folder."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path

import pytest

from koordinator.base.errors import KoordinatorError
from koordinator.cli.data_folder import DataFolderInUse, holder_of, lock_data_folder


def test_a_second_user_is_refused_with_the_holder_named(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    with (
        lock_data_folder(folder, "koord up"),
        pytest.raises(DataFolderInUse, match=f"a koord up runs already.*kill {os.getpid()}, .*--data"),
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


def test_a_folder_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(KoordinatorError, match=re.escape(str(file))), lock_data_folder(file):
        pass


def test_the_holder_is_known_while_there_is_one(tmp_path: Path) -> None:
    assert holder_of(tmp_path) is None
    with lock_data_folder(tmp_path):
        assert holder_of(tmp_path) == os.getpid()
    assert holder_of(tmp_path) is None
