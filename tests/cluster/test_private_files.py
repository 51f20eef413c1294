"""Files with secrets: written in one step, to the disk, readable by their owner alone, and through no link."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from koordinator.cluster import data_folder
from koordinator.cluster.data_folder import write_private


def test_the_file_is_there_for_its_owner_alone(tmp_path: Path) -> None:
    write_private(tmp_path / "key", b"secret")
    assert ((tmp_path / "key").read_bytes(), stat.S_IMODE((tmp_path / "key").stat().st_mode)) == (b"secret", 0o600)


def test_nothing_else_is_left(tmp_path: Path) -> None:
    write_private(tmp_path / "key", b"1")
    write_private(tmp_path / "key", b"2")
    assert [path.name for path in tmp_path.iterdir()] == ["key"]


def test_a_link_is_replaced_and_not_followed(tmp_path: Path) -> None:
    (tmp_path / "victim").write_bytes(b"precious")
    (tmp_path / "key").symlink_to(tmp_path / "victim")
    write_private(tmp_path / "key", b"secret")
    assert ((tmp_path / "victim").read_bytes(), (tmp_path / "key").is_symlink()) == (b"precious", False)


def test_a_planted_temporary_file_is_not_written_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even if somebody guesses its name: a link there would carry the secret away."""
    monkeypatch.setattr(data_folder, "_suffix", lambda: "guessed")
    (tmp_path / ".key.guessed").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(FileExistsError):
        write_private(tmp_path / "key", b"secret")
    assert not (tmp_path / "elsewhere").exists()


def test_content_and_folder_are_synced_before_it_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In this order: a name that points to content which a power cut takes away is worse than no file."""
    events: list[str] = []
    real_sync, real_replace = os.fsync, os.replace

    def fsync(descriptor: int) -> None:
        events.append("sync folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "sync file")
        real_sync(descriptor)

    def replace(source: Path, target: Path) -> None:
        events.append("rename")
        real_replace(source, target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "replace", replace)
    write_private(tmp_path / "key", b"secret")
    assert events == ["sync file", "rename", "sync folder"]


def test_a_failure_leaves_the_old_content_and_no_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fsync(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    write_private(tmp_path / "key", b"old")
    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(OSError, match="No space"):
        write_private(tmp_path / "key", b"new")
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("key", b"old")]
