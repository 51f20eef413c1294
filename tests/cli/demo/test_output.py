"""What the demonstration prints besides its report: progress, what to do next, the picture."""

from __future__ import annotations

import asyncio
import io
import re
import shlex
import xml.etree.ElementTree as ElementTree
from datetime import UTC, datetime
from pathlib import Path

import pytest
from rich.console import Console

from koordinator.base.clock import ManualClock
from koordinator.base.errors import ConfigurationError
from koordinator.cli.cluster_record import ClusterRecord, write_record
from koordinator.cli.demo.claim import Claim
from koordinator.cli.demo.folder import demo_folder
from koordinator.cli.demo.observation import Day
from koordinator.cli.demo.play import day_progress
from koordinator.cli.demo.report import save_picture
from koordinator.cli.main import main, make_parser


def test_a_log_gets_a_line_every_three_hours() -> None:
    console = Console(file=io.StringIO())
    with day_progress(console, ManualClock()) as shown:
        for half_hour in range(48):
            shown.hour(half_hour / 2, f"hour {half_hour / 2:g}")
    assert isinstance(console.file, io.StringIO)
    assert console.file.getvalue().split("\n")[:-1] == [f"hour {hour}" for hour in range(0, 24, 3)]


def test_a_log_says_what_is_waited_for_long() -> None:
    console, clock = Console(file=io.StringIO(), width=200), ManualClock()
    with day_progress(console, clock) as shown:
        shown.hour(7.0, "07:00")
        for _ in range(12):
            shown.waiting("waiting until koord-manager has used the reports (it works on 3 keys)")
            asyncio.run(clock.advance(1))
    assert isinstance(console.file, io.StringIO)
    said = console.file.getvalue().splitlines()
    assert said == ["07:00", *["waiting until koord-manager has used the reports (it works on 3 keys)"] * 2]


def test_a_terminal_shows_what_is_waited_for_at_once() -> None:
    console = Console(file=io.StringIO(), width=200, force_terminal=True)
    with day_progress(console, ManualClock()) as shown:
        shown.hour(7.0, "07:00")
        shown.waiting("waiting until koord-manager has used the reports")
    assert isinstance(console.file, io.StringIO)
    assert "07:00, waiting until koord-manager has used the reports" in console.file.getvalue()


def test_the_picture_is_xml_that_requests_nothing_from_elsewhere(tmp_path: Path) -> None:
    path = tmp_path / "images" / "demo.svg"
    save_picture(Day(), [Claim("this <holds> & is shown", True, "", "", ())], path)
    root = ElementTree.fromstring(path.read_text())
    assert "this" in "".join(root.itertext())
    assert set(re.findall(r"https?://[^\"' ]+", path.read_text())) == {"http://www.w3.org/2000/svg"}


def test_a_picture_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigurationError, match=r"--svg: .*file/demo\.svg"):
        save_picture(Day(), [], tmp_path / "file" / "demo.svg")


def test_a_second_kept_demonstration_shows_how_to_use_the_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with demo_folder(tmp_path):
        now = datetime(2026, 1, 1, tzinfo=UTC)
        write_record(tmp_path, ClusterRecord("koord demo", 42, "0.1.0", now, "up", str(tmp_path / "kubeconfig")))
        assert main(["demo", "--keep", "--data", str(tmp_path)]) == 1
    error = capsys.readouterr().err
    assert "a koord demo runs already on" in error
    commands = [line.strip() for line in error.splitlines() if line.startswith("  ")]
    assert commands[0] == f"export KUBECONFIG={tmp_path}/kubeconfig"
    for command in commands:
        words = shlex.split(command)
        if "koordinator.cli.main" in command or words[0].endswith("koord"):
            at = next(index for index, word in enumerate(words) if word in ("explain", "status", "page"))
            make_parser().parse_args(words[at:])
    assert any(f"status --data {tmp_path}" in command for command in commands)


def test_one_that_is_still_playing_is_not_recommended(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with demo_folder(tmp_path):
        assert main(["demo", "--keep", "--data", str(tmp_path)]) == 1
    assert "It can be used" not in capsys.readouterr().err
