"""A program whose packages are not all installed says which of them, and how to get them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from koordinator.base.entry import entry, what_is_missing


def test_what_is_not_installed_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "sample_program"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "node_agent.py").write_text("import a_package_that_nobody_has\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert entry("sample_program.node_agent")() == 1
    written = capsys.readouterr().err
    assert written == (
        "error: the module a_package_that_nobody_has is not installed: pip install koordinator brings it\n"
    )
    del sys.modules["sample_program"]


def test_a_module_of_the_program_itself_is_no_package_to_install() -> None:
    with pytest.raises(ModuleNotFoundError):
        what_is_missing(ModuleNotFoundError("no module", name="koordinator.nothing"))
