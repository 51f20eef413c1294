"""Which folders a cluster is kept in, and which are refused, each with what to do about it."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from koordinator.cluster.data_folder import MARKER, UnusableFolder, claim_folder


def _refusal(folder: Path) -> str:
    with pytest.raises(UnusableFolder) as refused:
        claim_folder(folder)
    text = str(refused.value)
    assert str(folder) in text
    assert "\n" not in text
    return text


def test_a_new_folder_is_made_for_its_owner_alone(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b"
    claim_folder(folder)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_a_folder_that_was_claimed_is_taken_again_whatever_is_in_it(tmp_path: Path) -> None:
    claim_folder(tmp_path / "data")
    (tmp_path / "data" / "notes.txt").write_text("mine")
    claim_folder(tmp_path / "data")


def test_what_others_may_read_is_closed_to_them(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data").chmod(0o755)
    claim_folder(tmp_path / "data")
    assert stat.S_IMODE((tmp_path / "data").stat().st_mode) == 0o700


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o1777])
def test_a_folder_that_others_may_write_to_is_refused(tmp_path: Path, mode: int) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data").chmod(mode)
    assert "may be written to by other users" in _refusal(tmp_path / "data")
    assert "chmod go-w" in _refusal(tmp_path / "data")


def test_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir(mode=0o700)
    (tmp_path / "data").symlink_to(tmp_path / "real")
    assert f"name {tmp_path / 'real'} itself" in _refusal(tmp_path / "data")


def test_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("")
    assert "is not a folder" in _refusal(tmp_path / "data")


def test_a_folder_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "data").mkdir(mode=0o700)
    monkeypatch.setattr(os, "geteuid", lambda: (tmp_path / "data").stat().st_uid + 1)
    assert "belongs to another user" in _refusal(tmp_path / "data")


def test_a_folder_with_other_content_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    folder.chmod(0o755)
    (folder / "thesis.tex").write_text("")
    assert "thesis.tex" in _refusal(folder)
    assert (os.listdir(folder), stat.S_IMODE(folder.stat().st_mode)) == (["thesis.tex"], 0o755)


@pytest.mark.parametrize("content", [("lock", "cluster.db", "pki", "token", "kubeconfig"), ("up.lock", "api", "logs")])
def test_the_folder_of_an_earlier_release_is_taken(tmp_path: Path, content: tuple[str, ...]) -> None:
    folder = tmp_path / "data"
    folder.mkdir(mode=0o700)
    for name in content:
        (folder / name).write_text("")
    claim_folder(folder)
    assert (folder / MARKER).exists()


def test_a_marker_that_is_a_link_is_no_marker(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir(mode=0o700)
    (folder / "thesis.tex").write_text("")
    (folder / MARKER).symlink_to(tmp_path)
    assert "thesis.tex" in _refusal(folder)
