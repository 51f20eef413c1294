"""The log of a program of the local cluster, and the end of a koord up that does not run."""

from __future__ import annotations

from pathlib import Path

import pytest

from koordinator.cli.logs import contents
from koordinator.cli.main import main


def last_lines(log: Path, lines: int) -> str:
    return "".join(contents(log, lines, follow=False, sleep=lambda duration: None))


@pytest.mark.parametrize(("lines", "expected"), [(-1, "a\nb\nc\n"), (0, ""), (2, "b\nc\n"), (9, "a\nb\nc\n")])
def test_the_last_lines_are_printed(tmp_path: Path, lines: int, expected: str) -> None:
    log = tmp_path / "scheduler.log"
    log.write_text("a\nb\nc\n")
    assert last_lines(log, lines) == expected


def test_a_long_log_is_read_from_its_end(tmp_path: Path) -> None:
    log = tmp_path / "scheduler.log"
    log.write_text("".join(f"line {number}\n" for number in range(20_000)))
    assert last_lines(log, 2) == "line 19998\nline 19999\n"


def test_what_is_written_later_and_after_a_cut_is_followed(tmp_path: Path) -> None:
    log = tmp_path / "scheduler.log"
    log.write_text("old old old\n")
    found = contents(log, 1, follow=True, sleep=lambda duration: changes.pop(0)())

    def write_more() -> None:
        with log.open("a") as file:
            file.write("new\n")

    def cut() -> None:
        log.write_text("cut\n")

    changes = [write_more, cut]
    assert [next(found) for _ in range(3)] == ["old old old\n", "new\n", "cut\n"]


def test_names_of_programs_are_taken_as_people_say_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "scheduler.log").write_text("it leads\n")
    assert main(["logs", "koord-scheduler", f"--data={tmp_path}"]) == 0
    assert capsys.readouterr().out == "it leads\n"
    with pytest.raises(SystemExit):
        main(["logs", "schedular", f"--data={tmp_path}"])
    assert "did you mean scheduler?" in capsys.readouterr().err


def test_a_program_that_has_not_run_there_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["logs", "manager", f"--data={tmp_path}"]) == 1
    assert "no manager has run from that folder" in capsys.readouterr().err


def test_down_says_that_nothing_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["down", f"--data={tmp_path}"]) == 0
    assert capsys.readouterr().out == f"nothing runs on {tmp_path}\n"
