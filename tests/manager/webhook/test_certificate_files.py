"""Certificates on disk: all or none, and nobody else's to read."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordinator.manager.webhook.certificate_files import (
    NAMES,
    CertificateFilesError,
    read_files,
    to_files,
    write_files,
)
from koordinator.manager.webhook.certificates import Certificates
from tests.manager.webhook.making import NOW

FIRST = Certificates(b"authority key 1", b"authority 1", b"key 1", b"certificate 1")
SECOND = Certificates(b"authority key 2", b"authority 2", b"key 2", b"certificate 2")


def test_what_was_written_is_read_under_all_six_names(tmp_path: Path) -> None:
    folder = tmp_path / "deep/certificates"
    assert write_files(folder, FIRST, NOW)
    assert read_files(folder) == FIRST
    assert {name: (folder / name).read_bytes() for name in NAMES} == to_files(FIRST)


def test_only_the_owner_may_read_or_enter(tmp_path: Path) -> None:
    folder = tmp_path / "certificates"
    folder.mkdir(mode=0o777)
    write_files(folder, FIRST, NOW)
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {(folder / name).stat().st_mode & 0o777 for name in NAMES} == {0o600}


def test_the_layout_is_that_of_a_mounted_secret(tmp_path: Path) -> None:
    write_files(tmp_path, FIRST, NOW)
    version = os.readlink(tmp_path / "..data")
    assert version.startswith("..2026_01_15_12_00_00.")
    assert all(os.readlink(tmp_path / name) == f"..data/{name}" for name in NAMES)
    assert sorted(os.listdir(tmp_path)) == sorted([*NAMES, "..data", version])


def test_the_same_certificates_are_not_written_again(tmp_path: Path) -> None:
    write_files(tmp_path, FIRST, NOW)
    before = os.readlink(tmp_path / "..data")
    assert not write_files(tmp_path, FIRST, NOW + timedelta(days=1))
    assert os.readlink(tmp_path / "..data") == before


def test_new_ones_replace_the_old_and_leave_nothing_of_them(tmp_path: Path) -> None:
    write_files(tmp_path, FIRST, NOW)
    (tmp_path / "..2020_01_01_00_00_00.crashed").mkdir()
    assert write_files(tmp_path, SECOND, NOW + timedelta(days=1))
    assert read_files(tmp_path) == SECOND
    assert len([entry for entry in tmp_path.iterdir() if entry.is_dir() and not entry.is_symlink()]) == 1


def test_plain_files_of_those_names_make_room(tmp_path: Path) -> None:
    for name in NAMES:
        (tmp_path / name).write_text("by hand")
    assert write_files(tmp_path, FIRST, NOW)
    assert read_files(tmp_path) == FIRST
    assert (tmp_path / "tls.crt").is_symlink()


def test_other_files_stay(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    write_files(tmp_path, FIRST, NOW)
    write_files(tmp_path, SECOND, NOW)
    assert (tmp_path / "mine.txt").read_text() == "mine"


@pytest.mark.parametrize("missing", NAMES)
def test_unless_all_are_there_there_are_none(tmp_path: Path, missing: str) -> None:
    write_files(tmp_path, FIRST, NOW)
    (tmp_path / missing).unlink()
    assert read_files(tmp_path) is None
    assert write_files(tmp_path, FIRST, NOW)
    assert read_files(tmp_path) == FIRST


def test_a_folder_that_is_a_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert read_files(tmp_path / "file") is None
    with pytest.raises(CertificateFilesError, match="file: certificates cannot be written"):
        write_files(tmp_path / "file", FIRST, NOW)


class _Crash(Exception):
    pass


@given(st.integers(0, 40))
def test_a_process_that_ends_at_any_step_leaves_one_whole_set(
    tmp_path_factory: pytest.TempPathFactory, steps: int
) -> None:
    folder = tmp_path_factory.mktemp("certificates")
    write_files(folder, FIRST, NOW)
    left = iter(range(steps))
    with pytest.MonkeyPatch.context() as patch:
        for owner, name in ((os, "open"), (Path, "symlink_to"), (Path, "replace"), (Path, "mkdir")):
            patch.setattr(owner, name, _crashing(getattr(owner, name), left))
        with suppress(_Crash):
            write_files(folder, SECOND, NOW)
    assert read_files(folder) in (FIRST, SECOND)
    write_files(folder, SECOND, NOW)
    assert read_files(folder) == SECOND


def _crashing(work: Callable[..., Any], left: Iterator[int]) -> Callable[..., Any]:
    def step(*arguments: Any, **options: Any) -> Any:
        if next(left, None) is None:
            raise _Crash
        return work(*arguments, **options)

    return step
