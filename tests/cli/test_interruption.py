"""Signals: the first ends the work in order, the second everything at once."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from koordinator.cli.interruption import Interrupted, until_interrupted

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


async def works() -> str:
    return "done"


def test_work_that_nobody_interrupts_returns_its_result() -> None:
    assert asyncio.run(until_interrupted(works(), kill=lambda: None, on_interrupt=lambda: None)) == "done"


@pytest.fixture
def nothing_ignored() -> Iterator[None]:
    """Whoever runs the tests may have handed down that a signal is ignored, as nohup does."""
    before = {number: signal.signal(number, signal.SIG_DFL) for number in SIGNALS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("nothing_ignored")
@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_lets_the_work_clean_up(number: signal.Signals) -> None:
    happened: list[str] = []

    async def endless() -> None:
        try:
            os.kill(os.getpid(), number)
            await asyncio.Event().wait()
        finally:
            happened.append("cleaned up")

    with pytest.raises(Interrupted) as caught:
        asyncio.run(until_interrupted(endless(), kill=lambda: None, on_interrupt=lambda: happened.append("told")))
    assert happened == ["told", "cleaned up"]
    assert caught.value.exit_status == 128 + number


def test_a_signal_that_interrupts_no_system_call_wakes_the_loop() -> None:
    """As when it comes just before the loop waits: a thread gets it, so that the wait of the main one goes on."""
    code = (
        "import asyncio, os, signal, threading\n"
        "from koordinator.cli.interruption import run\n"
        "def interrupt():\n"
        "    for _ in range(10_000):\n"
        "        os.sched_yield()\n"
        "    signal.pthread_kill(threading.get_ident(), signal.SIGINT)\n"
        "async def wait():\n"
        "    threading.Thread(target=interrupt).start()\n"
        "    await asyncio.sleep(50)\n"
        "    print('woken by its timer')\n"
        "try:\n"
        "    run(wait())\n"
        "except KeyboardInterrupt:\n"
        "    print('interrupted')\n"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=40, check=True)
    assert (ended.stdout, ended.stderr) == ("interrupted\n", "")


def test_the_second_signal_kills_and_ends_the_process() -> None:
    code = (
        "import asyncio, os, signal\n"
        "from koordinator.cli.interruption import until_interrupted\n"
        "async def stubborn():\n"
        "    try:\n"
        "        os.kill(os.getpid(), signal.SIGINT)\n"
        "        await asyncio.Event().wait()\n"
        "    finally:\n"
        "        os.kill(os.getpid(), signal.SIGINT)\n"
        "        await asyncio.Event().wait()\n"
        "asyncio.run(until_interrupted(stubborn(), kill=lambda: print('killed', flush=True), on_interrupt=int))\n"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "killed\n", "")
