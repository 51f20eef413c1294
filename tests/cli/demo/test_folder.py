"""Only a folder of a demonstration is emptied for the next one."""

from __future__ import annotations

from pathlib import Path

import pytest

from koordinator.cli.data_folder import DataFolderError, DataFolderInUse, default_data_folder
from koordinator.cli.demo.folder import demo_folder, kept_folder


def test_a_temporary_folder_is_deleted() -> None:
    with demo_folder(None) as folder:
        assert folder.is_dir()
    assert not folder.exists()


def test_the_next_demonstration_starts_afresh_in_the_same_folder(tmp_path: Path) -> None:
    with demo_folder(tmp_path) as folder:
        (folder / "api").mkdir()
        (folder / "notes").touch()
        (folder / "kubeconfig").touch()
    assert (tmp_path / "api").exists()
    with demo_folder(tmp_path):
        assert not (tmp_path / "api").exists()
        assert not (tmp_path / "kubeconfig").exists()
        assert (tmp_path / "notes").exists()


def test_a_cluster_of_koord_up_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "api").mkdir()
    with pytest.raises(DataFolderError, match="not a demonstration's"), demo_folder(tmp_path):
        pass
    assert (tmp_path / "api").exists()


def test_one_demonstration_a_folder(tmp_path: Path) -> None:
    with (
        demo_folder(tmp_path),
        pytest.raises(DataFolderInUse, match="a koord demo runs already"),
        demo_folder(tmp_path),
    ):
        pass


def test_a_kept_demonstration_is_not_where_koord_up_keeps_its_state() -> None:
    assert kept_folder() != default_data_folder()
