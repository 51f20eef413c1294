"""The program refuses to start with a plain line."""

from __future__ import annotations

from pathlib import Path

import pytest

from koordinator.cluster.nodes.main import main


def test_a_missing_kubeconfig_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([f"--kubeconfig={tmp_path / 'none'}", "--nodes=1"]) == 1
    assert str(tmp_path / "none") in capsys.readouterr().err


def test_a_bad_scenario_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("nodeGroups: [{name: a, pods: 0}]")
    assert main([f"--scenario={path}", "--kubeconfig=none"]) == 1
    assert "nodeGroups[0].pods: 0 is not usable: from 1 to 250" in capsys.readouterr().err


@pytest.mark.parametrize(("flag", "message"), [("--nodes=0", "--nodes: 0"), ("--speed=-1", "timing.speed: -1")])
def test_a_bad_flag_is_named(flag: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([flag]) == 1
    assert message in capsys.readouterr().err
