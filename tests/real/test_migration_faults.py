"""A pod moves on a real API server while koord-descheduler is killed again and again, another one takes over, or the
API server goes away. Kubernetes' controllers make the new pod, our koord-scheduler places it.

tests/descheduler/migration stops the program at each of its writes; here, programs die at the states that are seen.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from koordinator.api.document import Document
from tests.real.control_plane import ControlPlane
from tests.real.migration_programs import (
    budget,
    cluster_of_moving_pods,
    created,
    deployment,
    is_ready,
    items,
    write_descheduler_configuration,
)
from tests.real.polling import until
from tests.real.programs import RealPrograms

_REPLICAS: Final = 3
_ARGS: Final = {"evictQPS": "100", "evictBurst": 100, "objectLimiters": {"workload": {"duration": "0s"}}}
_JOBS: Final = "/apis/scheduling.koordinator.sh/v1alpha1/podmigrationjobs"
_LEASE: Final = "/apis/coordination.k8s.io/v1/namespaces/koordinator-system/leases/koord-descheduler"
_ELECTION: Final = {"leaderElect": True, "leaseDuration": "4s", "renewDeadline": "3s", "retryPeriod": "500ms"}
_TERMINAL: Final = ("Succeeded", "Failed", "Aborted")
_SECONDS: Final = 300.0
"""For all that one test waits for: a program that is killed five times starts five times, on a busy machine for half a
minute each."""


class Web:
    """A Deployment in a namespace of its own whose first pod a job moves, and what is seen of it."""

    def __init__(self, plane: ControlPlane, name: str, *, disruptions: int) -> None:
        self.plane = plane
        self.name = name
        self._pods = f"/api/v1/namespaces/{name}/pods"
        self._budget = f"/apis/policy/v1/namespaces/{name}/poddisruptionbudgets"
        self.uids: set[str] = set()
        """Of all pods that were ever seen: one that is evicted is made anew."""
        self.fewest_ready = _REPLICAS
        created(plane, "/api/v1/namespaces", {"metadata": {"name": name}})
        created(plane, f"/apis/apps/v1/namespaces/{name}/deployments", deployment(_REPLICAS))
        created(plane, self._budget, budget(maxUnavailable=disruptions))
        until(lambda: sum(map(is_ready, items(plane, self._pods))) == _REPLICAS, _SECONDS, "pods")

    def move(self) -> None:
        """Create the job."""
        pod = min(each["metadata"]["name"] for each in items(self.plane, self._pods))
        reference = {"namespace": self.name, "name": pod}
        spec = {"podRef": reference, "mode": "ReservationFirst", "ttl": "5m0s"}
        kind = {"apiVersion": "scheduling.koordinator.sh/v1alpha1", "kind": "PodMigrationJob"}
        created(self.plane, _JOBS, {**kind, "metadata": {"name": self.name}, "spec": spec})

    def allow(self, disruptions: int) -> None:
        spec = {"spec": {"maxUnavailable": disruptions}}
        assert self.plane.request("PATCH", f"{self._budget}/web", spec)[0] == 200

    def look(self) -> Document:
        """The status of the job."""
        pods = items(self.plane, self._pods)
        self.uids |= {pod["metadata"]["uid"] for pod in pods}
        staying = [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]
        self.fewest_ready = min(self.fewest_ready, sum(map(is_ready, staying)))
        status: Document = self.plane.request("GET", f"{_JOBS}/{self.name}")[1].get("status", {})
        return status

    def is_at(self, step: str) -> bool:
        return bool(self.look().get("status") == step)

    def until_ended(self) -> Document:
        until(lambda: self.look().get("phase") in _TERMINAL, _SECONDS, f"the job of {self.name} to end")
        return self.look()


class Program:
    """A koord-descheduler."""

    def __init__(self, configuration: Path, log: Path) -> None:
        self._log = log.open("ab")
        command = [sys.executable, "-m", "koordinator.descheduler", f"--config={configuration}", "-v=4"]
        self.process = subprocess.Popen(command, stdout=self._log, stderr=self._log)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self._log.close()


@pytest.fixture(scope="module")
def plane(real_programs: RealPrograms, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    with cluster_of_moving_pods(real_programs, tmp_path_factory.mktemp("faults"), our_scheduler=True) as made:
        yield made


@contextmanager
def replica(
    plane: ControlPlane, folder: Path, name: str, election: Mapping[str, Any] | None = None
) -> Iterator[Program]:
    configuration = write_descheduler_configuration(folder / f"{name}.yaml", plane.kubeconfig, _ARGS, election)
    program = Program(configuration, folder / f"{name}.log")
    try:
        yield program
    finally:
        program.kill()


def _holder(plane: ControlPlane) -> str:
    return str(plane.request("GET", _LEASE)[1].get("spec", {}).get("holderIdentity", ""))


def test_a_job_is_carried_out_once_although_the_program_is_killed_at_each_state_that_is_seen(
    plane: ControlPlane, tmp_path: Path
) -> None:
    web, killed_at = Web(plane, "killed", disruptions=0), set[str]()
    configuration = write_descheduler_configuration(tmp_path / "descheduler.yaml", plane.kubeconfig, _ARGS)
    web.move()
    deadline = time.monotonic() + _SECONDS
    program = Program(configuration, tmp_path / "descheduler.log")
    try:
        while (status := web.look()).get("phase") not in _TERMINAL:
            assert time.monotonic() < deadline, status
            assert program.process.poll() is None, (tmp_path / "descheduler.log").read_text()[-2000:]
            state = status.get("status", "")
            if state and state not in killed_at:
                program.kill()
                killed_at.add(state)
                if state == "ReservationScheduled":
                    # Until now it has waited for its budget, so that it is seen there for certain.
                    web.allow(1)
                program = Program(configuration, tmp_path / "descheduler.log")
    finally:
        program.kill()
    # How many of the states are seen depends on the machine: some last for milliseconds.
    assert len(killed_at) >= 2, killed_at
    assert web.look()["phase"] == "Succeeded", web.look()
    assert len(web.uids) == _REPLICAS + 1
    assert web.fewest_ready >= _REPLICAS - 1


def test_another_replica_goes_on_when_the_leader_is_frozen_which_its_watchdog_ends(
    plane: ControlPlane, tmp_path: Path
) -> None:
    web = Web(plane, "frozen", disruptions=0)
    with replica(plane, tmp_path, "first", _ELECTION) as first:
        until(lambda: _holder(plane), _SECONDS, "the first to lead")
        leader = _holder(plane)
        with replica(plane, tmp_path, "second", _ELECTION):
            web.move()
            until(lambda: web.is_at("ReservationScheduled"), _SECONDS, "the job to wait for its budget")
            first.process.send_signal(signal.SIGSTOP)
            until(lambda: _holder(plane) not in ("", leader), _SECONDS, "the second to lead")
            web.allow(1)
            assert web.until_ended()["phase"] == "Succeeded"
            # It must not awake and go on as if it still led.
            assert first.process.wait(_SECONDS) == -signal.SIGKILL
    assert len(web.uids) == _REPLICAS + 1


def test_a_job_goes_on_when_the_api_server_is_back(plane: ControlPlane, tmp_path: Path) -> None:
    web = Web(plane, "away", disruptions=0)
    with replica(plane, tmp_path, "descheduler") as program:
        web.move()
        until(lambda: web.is_at("ReservationScheduled"), _SECONDS, "the job to wait for its budget")
        plane.restart()
        web.allow(1)
        assert web.until_ended()["phase"] == "Succeeded"
        assert program.process.poll() is None
    assert len(web.uids) == _REPLICAS + 1
