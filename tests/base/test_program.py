"""How the process of a program begins and ends."""

from __future__ import annotations

import logging
import signal
import subprocess
import sys

import pytest

from koordinator.base.errors import ConfigurationError
from koordinator.base.program import Process, Run, greet, run_program

_WAITING = """
import sys
from koordinator.base.program import run_program

async def run(process):
    print("working", flush=True)
    await process.stop.wait()
    print(process.host, flush=True)

sys.exit(run_program("program", lambda: run))
"""


async def nothing(process: Process) -> None:
    assert process.metrics.registry.get_sample_value("process_start_time_seconds")


async def failing(process: Process) -> None:
    raise ConfigurationError("replicas", -1, "a whole number from 0")


async def defective(process: Process) -> None:
    raise ZeroDivisionError("a defect")


@pytest.mark.parametrize("run", [nothing, None])
def test_work_that_is_done_is_status_0(run: Run | None) -> None:
    assert run_program("program", lambda: run) == 0


def test_an_error_while_it_runs_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_program("program", lambda: failing) == 1
    assert capsys.readouterr().err == "program: replicas: -1 is not usable: a whole number from 0\n"


def test_an_error_in_the_configuration_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    def prepare() -> Run:
        raise ConfigurationError("--config", "x", "a file")

    assert run_program("program", prepare) == 1
    assert capsys.readouterr().err == "program: --config: 'x' is not usable: a file\n"


def test_a_defect_is_not_hidden() -> None:
    with pytest.raises(ZeroDivisionError):
        run_program("program", lambda: defective)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_in_good_order(number: signal.Signals) -> None:
    command = [sys.executable, "-c", _WAITING]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "working\n"
        process.send_signal(number)
        rest, errors = process.communicate(timeout=20)
    assert (process.returncode, errors) == (0, "")
    assert rest.strip()


def test_it_says_what_it_is_and_what_will_not_have_the_expected_effect(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    greet("program", "no leader election", ["--x has no effect"])
    first, second = caplog.records
    assert first.getMessage().startswith("program ")
    assert first.getMessage().endswith("no leader election")
    assert (second.levelname, second.getMessage()) == ("WARNING", "--x has no effect")
