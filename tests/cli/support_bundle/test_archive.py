"""The file: its owner's alone, of bounded size, and none at all where it was not finished."""

from __future__ import annotations

import stat
import tarfile
from datetime import UTC, datetime
from pathlib import Path

import pytest

from koordinator.cli.support_bundle.archive import Archive, BundleError

NOW = datetime(2026, 12, 1, 12, tzinfo=UTC)


def texts(path: Path) -> dict[str, str]:
    with tarfile.open(path) as archive:
        members = ((member.name.partition("/")[2], archive.extractfile(member)) for member in archive)
        return {name: file.read().decode() for name, file in members if file is not None}


def test_what_was_added_is_there_with_an_index(tmp_path: Path) -> None:
    path = tmp_path / "report.tar.gz"
    with Archive(path, NOW, 1000) as archive:
        archive.add("a/b.json", "what b is", "{}", "cut")
        archive.leave_out("c", "what c is", "no\nright | none")
        archive.finish("# Head\n", ["a password: 1 times"])
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    found = texts(path)
    assert found["a/b.json"] == "{}"
    assert "| a/b.json | what b is; cut | 2 |" in found["index.md"]
    assert "| c | what c is | no right \\| none |" in found["index.md"]
    assert found["index.md"].startswith("# Head\n")
    with tarfile.open(path) as opened:
        assert {(member.name.partition("/")[0], member.mode) for member in opened} == {("report", 0o600)}


def test_what_does_not_fit_is_left_out_and_smaller_parts_are_not(tmp_path: Path) -> None:
    with Archive(tmp_path / "a.tar.gz", NOW, 10) as archive:
        assert archive.add("large", "", "x" * 11) is None
        assert archive.add("small", "", "x" * 10) is not None
        assert archive.add("none", "", "x") is None
    assert [(each.path, each.reason.split(":")[0]) for each in archive.left_out] == [
        ("large", "the bundle would have become too large"),
        ("none", "the bundle would have become too large"),
    ]


def test_nothing_stays_of_what_was_not_finished(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), Archive(tmp_path / "a.tar.gz", NOW, 10):
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("is_link", [False, True])
def test_a_file_of_another_is_never_written_into(is_link: bool, tmp_path: Path) -> None:
    path, other = tmp_path / "a.tar.gz", tmp_path / "other"
    other.write_text("kept")
    path.symlink_to(other) if is_link else path.write_text("kept")
    with pytest.raises(BundleError, match="is there already: name another with --file"), Archive(path, NOW, 10):
        pass
    assert path.read_text() == other.read_text() == "kept"


def test_a_folder_that_is_not_there_is_said(tmp_path: Path) -> None:
    with (
        pytest.raises(BundleError, match="No such file or directory; name another with --file"),
        Archive(tmp_path / "none" / "a", NOW, 10),
    ):
        pass
