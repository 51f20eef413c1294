"""The program before it reaches a cluster: messages and exit status."""

from __future__ import annotations

from pathlib import Path

import pytest

from koordinator.manager.main import main


def test_a_mistake_in_the_environment_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([], {"WEBHOOK_PORT": "http"}) == 1
    error = capsys.readouterr().err
    assert error.startswith("koord-manager: environment variable WEBHOOK_PORT: 'http'")
    assert error.count("\n") == 1


def test_a_kubeconfig_that_is_absent_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([f"--kubeconfig={tmp_path / 'absent'}", "--v=0"], {}) == 1
    assert "koord-manager: " in capsys.readouterr().err


def test_help_teaches(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--help"], {})
    assert ended.value.code == 0
    text = capsys.readouterr().out
    for word in ("WEBHOOK_HOST", "--controllers", "WebhookFramework=true|false (BETA - default=true)", "Examples, "):
        assert word in text
