"""An upgrade from one release to another one and back, one program at a time, with work that is half done each time."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.real.migration_programs import created
from tests.real.polling import until
from tests.real.programs import RealPrograms
from tests.real.upgrade import history, work
from tests.real.upgrade.cluster import PODS, PROGRAMS, Cluster, cluster
from tests.real.upgrade.recorder import Event
from tests.real.upgrade.releases import Release

_LEASES: Final = {
    "koord-manager": "koordinator-manager",
    "koord-scheduler": "koord-scheduler",
    "koord-descheduler": "koord-descheduler",
}
_TAKEN_OVER: Final = 40.0
"""Seconds: a lease of koord-manager lasts 15."""
_FINISHED: Final = 60.0
FORWARD: Final = dict(zip(PROGRAMS, (signal.SIGTERM, signal.SIGTERM, signal.SIGKILL), strict=True))
BACK: Final = dict(zip(PROGRAMS, (signal.SIGKILL, signal.SIGKILL, signal.SIGTERM), strict=True))


@dataclass
class Upgrade:
    """What was done and seen; the rest is in the watches and the audit log."""

    cluster: Cluster
    load: work.Load
    standing: list[str] = field(default_factory=list)
    began: float = 0.0
    """When the first program was replaced, by time.time."""
    whole: dict[str, float] = field(default_factory=dict)
    """Gang -> seconds until it was whole."""
    jobs: dict[str, str] = field(default_factory=dict)
    """Job -> its phase at the end."""
    used: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Stage -> the CPUs that the quota says are used, and those of its pods."""
    crashed: list[tuple[float, float]] = field(default_factory=list)
    """From when until when koord-manager was killed without a warning; requests on their way to it are lost."""

    @property
    def pods(self) -> list[Event]:
        return self.cluster.recorder.of("pods")

    @property
    def most_offered(self) -> dict[str, history.Amounts]:
        """Node -> the most that it has offered of each resource; batch resources follow what others use."""
        most: dict[str, history.Amounts] = {}
        for event in self.cluster.recorder.of("nodes"):
            found = history.amounts(event.object["status"].get("allocatable", {}))
            most[event.name] = most.get(event.name, found) | found
        return most

    def stage(self, number: int, old: Release, release: Release, how: Mapping[str, signal.Signals]) -> None:
        """Leave work half done, replace the programs, and let the others finish it."""
        found = self.cluster
        wait = work.wait_for_room if old.original is None else work.wait_for_a_gate
        finish = wait(found, f"waiting-{number}")
        half = work.half_bound(found, f"half-{number}")
        work.open_migration(found, f"moving-{number}")
        self.began = self.began or time.time()
        for program in PROGRAMS:
            self._roll(program, release, how[program])
        finish()
        work.admit(found, f"half-{number}")
        if release.original is not None:
            work.recreate_pending_member(found, f"half-{number}", 1, "roomy")
        found.plane.request("DELETE", f"{work.BUDGETS}/moving-{number}")
        waiting = [f"waiting-{number}-{member}" for member in range(2)]
        for name, members in ((f"waiting-{number}", waiting), (f"half-{number}", half)):
            started = time.monotonic()
            work.wait_bound(found, members, _FINISHED)
            self.whole[name] = time.monotonic() - started
        owner = f"owner-{number}"
        created(found.plane, PODS, work.pod(owner, "held", labels={"owner-of": "free"}))
        work.wait_bound(found, [owner])
        self.standing.append(owner)
        self._wait_for_job(f"moving-{number}")
        self._count_used(number)
        for name in waiting:
            found.delete_pod(name)

    def _roll(self, program: str, release: Release, how: signal.Signals) -> None:
        lease = _LEASES[program]
        before = self.cluster.holder(lease)

        def remind() -> None:
            if release.original is not None and program == "koord-scheduler":
                work.touch_pinned(self.cluster)

        started = time.time()
        self.cluster.programs.roll(program, release, how, remind)
        if program == "koord-manager" and how is signal.SIGKILL:
            self.crashed.append((started, time.time()))

        def is_taken() -> bool:
            return self.cluster.holder(lease) not in ("", before)

        until(is_taken, _TAKEN_OVER, f"a new holder of {lease}")

    def _wait_for_job(self, name: str) -> None:
        until(
            lambda: work.job_status(self.cluster, name).get("phase") in ("Succeeded", "Failed", "Aborted"),
            _FINISHED,
            f"the end of {name}",
        )
        self.jobs[name] = work.job_status(self.cluster, name)["phase"]

    def _count_used(self, number: int) -> None:
        """What the quota says is used, once that is what its pods request, or after a while."""
        with self.load.paused():
            started = time.monotonic()
            while time.monotonic() < started + _FINISHED:
                said, counted = work.quota_used(self.cluster)
                self.used[f"stage {number}"] = said, counted
                if said == counted:
                    break
                time.sleep(0.2)


@contextmanager
def upgraded(programs: RealPrograms, folder: Path, old: Release, new: Release) -> Iterator[Upgrade]:
    """From ``old`` to ``new`` and back; the programs run on meanwhile, without a load."""
    users = [f"{old.name}-{program}{more}" for program in PROGRAMS for more in ("", "-again")]
    users += [f"{new.name}-{program}" for program in PROGRAMS]
    with cluster(programs, folder, users) as found:
        for program in PROGRAMS:
            found.programs.install(program, old)
        upgrade = Upgrade(found, work.Load(found))
        upgrade.standing = work.standing(found)
        with upgrade.load.running():
            upgrade.stage(1, old, new, FORWARD)
            upgrade.stage(2, new, old, BACK)
        yield upgrade
