"""How koord-manager ends beside a real API server: asked to, twice asked to, or suspended past its lease."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.real.control_plane import ControlPlane
from tests.real.manager_cluster import gates, install, prepare
from tests.real.manager_process import OURS, ManagerProcess, manager
from tests.real.programs import RealPrograms

LEASE = "/apis/coordination.k8s.io/v1/namespaces/koordinator-system/leases/koordinator-manager"
LEASE_SECONDS = 15.0
AT_ONCE_SECONDS = 5.0
"""On a busy machine."""


@pytest.fixture(scope="module")
def cluster(real_programs: RealPrograms, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    with ControlPlane(real_programs.kubernetes, tmp_path_factory.mktemp("control-plane")) as plane:
        prepare(plane)
        install(plane)
        yield plane


@pytest.fixture
def leader(cluster: ControlPlane, tmp_path: Path) -> Iterator[ManagerProcess]:
    """One that leads and whose webhooks are ready."""
    with manager(OURS, cluster.kubeconfig, tmp_path, arguments=(gates(),)) as running:
        running.wait_ready()
        running.wait(lambda: "koordinator_manager_is_leader 1.0" in running.metrics(), "leader")
        yield running


def lease(cluster: ControlPlane) -> dict[str, Any]:
    spec: dict[str, Any] = cluster.request("GET", LEASE)[1]["spec"]
    return spec


def test_asked_to_stop_it_gives_up_its_lease_and_succeeds(cluster: ControlPlane, leader: ManagerProcess) -> None:
    assert lease(cluster)["holderIdentity"]
    assert leader.stop() == 0
    assert not lease(cluster).get("holderIdentity")
    assert "Traceback" not in leader.log.read_text()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("away", ["silent", "gone"])
def test_a_leader_whose_api_server_is_away_ends_at_once(
    plane: ControlPlane, tmp_path: Path, away: str, number: signal.Signals
) -> None:
    """Its lease cannot be given up; it expires, and nobody waits for a response that may never come."""
    prepare(plane)
    install(plane)
    with manager(OURS, plane.kubeconfig, tmp_path / "manager", arguments=(gates(),)) as running:
        running.wait_ready()
        running.wait(lambda: "koordinator_manager_is_leader 1.0" in running.metrics(), "leader")
        plane.pause_api_server() if away == "silent" else plane.kill_api_server()
        running.process.send_signal(number)
        assert running.process.wait(AT_ONCE_SECONDS) == 0
        plane.resume_api_server() if away == "silent" else plane.start_api_server()
        assert "Traceback" not in running.log.read_text()


def test_a_leader_that_stands_still_is_killed_when_its_lease_ends(
    cluster: ControlPlane, leader: ManagerProcess
) -> None:
    """Somebody else may have the lease from then on; what it had begun to write must not be sent."""
    leader.process.send_signal(signal.SIGSTOP)
    before = lease(cluster)
    assert leader.process.wait(LEASE_SECONDS + 5) == -signal.SIGKILL
    assert lease(cluster) == before


def test_a_leader_that_stood_still_for_a_moment_goes_on(leader: ManagerProcess) -> None:
    leader.process.send_signal(signal.SIGSTOP)
    leader.process.send_signal(signal.SIGCONT)
    leader.wait_ready()
    assert leader.stop() == 0
