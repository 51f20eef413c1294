"""Which packages are looked at for entry points."""

from __future__ import annotations

from pathlib import Path

import pytest

from koordinator.base.installed import is_declared, listing

GROUP = "koordinator.tests.things"


def install(folder: Path, group: str) -> None:
    """A package with one entry point."""
    metadata = folder / "things-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: things\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(f"[console_scripts]\na = b:c\n\n[{group}]\none = things:one\n")


def test_a_package_that_declares_one_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, GROUP)
    monkeypatch.syspath_prepend(tmp_path)
    assert [entry.value for entry in listing(GROUP)()] == ["things:one"]


def test_nothing_is_found_where_no_package_declares_one() -> None:
    assert list(listing(GROUP)()) == []


def test_packages_of_other_groups_declare_none(tmp_path: Path) -> None:
    install(tmp_path, f"{GROUP}.others")
    assert not is_declared(GROUP, [str(tmp_path)])


def test_a_folder_that_is_not_there_declares_none(tmp_path: Path) -> None:
    assert not is_declared(GROUP, [str(tmp_path / "none")])


def test_an_archive_may_declare_one(tmp_path: Path) -> None:
    archive = tmp_path / "things.zip"
    archive.touch()
    assert is_declared(GROUP, [str(archive)])
