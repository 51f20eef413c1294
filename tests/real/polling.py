"""How a test waits for other programs: it looks again and again, since nothing tells it."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

_PAUSE: Final = 0.05


def until(holds: Callable[[], object], seconds: float, what: str = "it") -> float:
    """Wait for what must come within so many seconds; how many that took."""
    started = time.monotonic()
    while not holds():
        assert time.monotonic() < started + seconds, f"{what}: not within {seconds:.0f} s"
        time.sleep(_PAUSE)
    return time.monotonic() - started


def until_nothing_is_left(
    left: Callable[[], object], seconds: float, process: subprocess.Popen[bytes], log: Path
) -> None:
    """Wait while the process works through what is left; its log is shown if it ends, or does not come to the end."""
    deadline = time.monotonic() + seconds
    while missing := left():
        text = log.read_text(errors="replace")[-3000:]
        assert process.poll() is None, text
        assert time.monotonic() < deadline, f"missing: {missing}: {text}"
        time.sleep(_PAUSE)
