"""docs/metrics.md says what the running programs have."""

from __future__ import annotations

import subprocess
import sys

from tests.docs.generated_pages import ROOT, stale_lines
from tests.docs.metrics_page import PAGE
from tests.waiting import PATIENCE


def test_the_page_is_as_the_programs_are() -> None:
    # A process of its own, since the programs set up its logging and its signals.
    program = [sys.executable, "-m", "tests.docs.metrics_page", "--print"]
    written = subprocess.run(program, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert written.returncode == 0, written.stderr
    lines = stale_lines({PAGE: written.stdout})
    assert not lines, "python -m tests.docs.metrics_page writes it anew:\n" + "\n".join(lines)
