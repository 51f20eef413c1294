"""What a round of GPUs costs, on cards that a test makes up."""

from __future__ import annotations

import json

import pytest

from benchmarks.gpu_round import main
from koordinator.node.errors import Unavailable
from koordinator.node.nvml import NVML
from tests.node.nvml_library import FakeCard, FakeNvmlLibrary


def test_the_report_is_one_line_of_json(capsys: pytest.CaptureFixture[str]) -> None:
    library = FakeNvmlLibrary(FakeCard({7: 100, 8: 100}), FakeCard({9: 100}))
    library.nvmlInit()
    assert main(["--rounds", "3"], lambda _: NVML(library)) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["gpus"], report["processes"], report["rounds"]) == (2, 3, 3)
    assert 0 < report["wall"]["median"] <= report["wall"]["longest"]
    assert not library.is_open


def test_without_a_gpu(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([], lambda _: Unavailable("no NVIDIA driver is loaded", "an NVIDIA GPU")) == 1
    assert "no NVIDIA driver is loaded" in capsys.readouterr().err
