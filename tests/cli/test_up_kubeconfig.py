"""``koord up`` never touches a kubeconfig that it did not write."""

from __future__ import annotations

from pathlib import Path

import pytest

from koordinator.cli.main import main


def test_a_foreign_kubeconfig_is_refused_before_anything_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kubeconfig = tmp_path / "config"
    kubeconfig.write_text("# mine\nkind: Config\n")
    arguments = ["up", "--only", "apiserver", "--data", str(tmp_path / "data"), "--kubeconfig", str(kubeconfig)]
    assert main(arguments) == 1
    assert kubeconfig.read_text() == "# mine\nkind: Config\n"
    assert not (tmp_path / "data").exists()
    assert "is left as it is" in capsys.readouterr().err


def test_the_default_path_is_no_exception(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir(mode=0o700)
    (tmp_path / "data" / "kubeconfig").write_text("# mine\n")
    assert main(["up", "--only", "apiserver", "--data", str(tmp_path / "data")]) == 1
    assert (tmp_path / "data" / "kubeconfig").read_text() == "# mine\n"
