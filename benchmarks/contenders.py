"""Who is compared, and how each is started."""

from __future__ import annotations

import sys
from enum import Enum
from pathlib import Path

from tests.real.programs import RealPrograms

ROOT = Path(__file__).resolve().parents[1]


class Contender(Enum):
    """The value is its name in the output."""

    ORIGINAL = "original"
    OURS = "ours"
    BIND_ONLY = "bind_only"
    """Each event before the next binding."""
    BIND_ONLY_LATER = "bind_only_events_later"
    EARLIER = "earlier"
    """koord-scheduler as it was at an earlier commit."""

    @property
    def keeps_rules(self) -> bool:
        """Whether it looks at what pods request at all."""
        return self in (Contender.ORIGINAL, Contender.OURS, Contender.EARLIER)

    def is_present(self, programs: RealPrograms) -> bool:
        """Whether its program is on this machine."""
        return self is not Contender.ORIGINAL or (programs.original / "koord-scheduler").is_file()

    def command(
        self, programs: RealPrograms, configuration: Path, kubeconfig: Path, checkout: Path | None = None
    ) -> list[str]:
        """Run it from the repository's root. ``checkout`` has the commit of EARLIER, which runs on our libraries."""
        if self in (Contender.OURS, Contender.EARLIER):
            ours = [sys.executable, "-m", "koordinator.scheduler", f"--config={configuration}", "--port=0"]
            return ["env", f"PYTHONPATH={checkout / 'src'}", *ours] if checkout is not None else ours
        if self is not Contender.ORIGINAL:
            when = "first" if self is Contender.BIND_ONLY else "later"
            return [sys.executable, "-m", "benchmarks.bind_only", str(kubeconfig), when]
        return [
            str(programs.original / "koord-scheduler"),
            f"--config={configuration}",
            f"--authentication-kubeconfig={kubeconfig}",
            f"--authorization-kubeconfig={kubeconfig}",
            "--secure-port=0",
            "--port=0",
        ]
