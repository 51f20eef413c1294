"""Network QoS through Terway: what stands in its files, what authors are told, and when there are no files."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordinator.koordlet.enforce.strategies.snapshot import PodUsage, Problem, Snapshot
from koordinator.koordlet.enforce.strategies.terway_qos import TerwayDecision, decide
from koordinator.koordlet.enforce.terway_files import NODE_FILE, POD_FILE, TerwayFilesError, TerwayQoS
from koordinator.node.host import Host
from tests.koordlet.enforce.strategies.qos_fixtures import pod_usage, policy, snapshot
from tests.koordlet.node_under_test import UID, NodeUnderTest

TOTAL = 8_000_000


def node_snapshot(
    *pods: PodUsage, network_policy: str = "terway-qos", total: int = TOTAL, **classes: dict[str, Any]
) -> Snapshot:
    strategy: dict[str, Any] = {name: {"networkQOS": {"enable": True, **qos}} for name, qos in classes.items()}
    strategy["policies"] = {"netQOSPolicy": network_policy}
    given_policy = policy(resourceQOSStrategy=strategy, systemStrategy={"totalNetworkBandwidth": str(total)})
    return snapshot(policy=given_policy, pods=pods)


def decided(given_: Snapshot) -> TerwayDecision:
    decision = decide(given_)
    assert decision is not None
    return decision


def node_lines(given_: Snapshot) -> dict[str, int]:
    node = decided(given_).node
    assert node is not None
    return {name: int(value) for name, value in (line.split(" ") for line in node.splitlines())}


def pods_of(given_: Snapshot) -> Any:
    pods = decided(given_).pods
    assert pods is not None
    return json.loads(pods)


BOTH: dict[str, Any] = {
    "lsClass": {"egressRequest": 50, "egressLimit": 100, "ingressRequest": 25, "ingressLimit": 75},
    "beClass": {"egressRequest": "800k", "egressLimit": "4M", "ingressRequest": 0, "ingressLimit": "1600k"},
}


def test_the_bandwidth_of_the_node_and_its_classes_in_the_daemons_order() -> None:
    assert decided(node_snapshot(**BOTH)).node == (
        "hw_tx_bps_max 1000000\n"
        "hw_rx_bps_max 1000000\n"
        "offline_l1_tx_bps_min 500000\n"
        "offline_l1_tx_bps_max 1000000\n"
        "offline_l1_rx_bps_min 250000\n"
        "offline_l1_rx_bps_max 750000\n"
        "offline_l2_tx_bps_min 100000\n"
        "offline_l2_tx_bps_max 500000\n"
        "offline_l2_rx_bps_min 0\n"
        "offline_l2_rx_bps_max 200000\n"
    )


def test_a_class_that_is_switched_off_has_nothing() -> None:
    lines = node_lines(node_snapshot(beClass={**BOTH["beClass"], "enable": False}))
    assert {value for name, value in lines.items() if "_l2_" in name} == {0}


@pytest.mark.parametrize(
    ("value", "allowed"),
    [(101, "a percentage from 0 to 100"), ("fast", "a quantity of 0 or more"), ("9M", "which is 8000000")],
)
def test_a_value_that_cannot_be_followed_is_named_and_the_others_are_taken(value: int | str, allowed: str) -> None:
    decision = decided(node_snapshot(beClass={"egressLimit": value, "ingressLimit": 50}))
    (problem,) = decision.problems
    assert problem.text.startswith(f"resourceQOSStrategy.beClass.networkQOS.egressLimit: {value!r}, allowed: ")
    assert allowed in problem.text
    assert decision.node is not None
    assert "offline_l2_rx_bps_max 500000\n" in decision.node


@given(percent=st.integers(0, 100), total=st.integers(0, 10**12))
def test_a_percentage_is_never_more_than_the_whole(percent: int, total: int) -> None:
    lines = node_lines(node_snapshot(total=total, beClass={"egressLimit": percent}))
    assert lines["offline_l2_tx_bps_max"] == total * percent // 100 // 8 <= lines["hw_tx_bps_max"]


def test_a_pod_with_limits() -> None:
    pod = pod_usage("job", "BE", annotations={"koordinator.sh/networkQOS": '{"ingressLimit":"8M","egressLimit":"80k"}'})
    assert pods_of(node_snapshot(pod)) == {
        "uid-job": {
            "podName": "job",
            "podNamespace": "shop",
            "podUID": "uid-job",
            "prio": 2,
            "cgroupDir": f"/sys/fs/cgroup/net_cls/{pod.pod.cgroup}",
            "qosConfig": {"ingressBandwidth": 1_000_000, "egressBandwidth": 10_000},
        }
    }


@pytest.mark.parametrize(("qos", "priority"), [("SYSTEM", 0), ("LSE", 1), ("LSR", 1), ("LS", 1), ("BE", 2), ("", 1)])
def test_the_priority_of_a_pod(qos: str, priority: int) -> None:
    assert pods_of(node_snapshot(pod_usage("web", qos)))["uid-web"]["prio"] == priority


@pytest.mark.parametrize("text", ["{", '{"ingressLimit":"much"}', '{"ingressLimit":"-1"}'])
def test_an_annotation_that_cannot_be_followed_is_reported_and_its_pod_stays(text: str) -> None:
    given_ = node_snapshot(pod_usage("web", annotations={"koordinator.sh/networkQOS": text}))
    (problem,) = decided(given_).problems
    assert problem.pod is not None
    assert pods_of(given_)["uid-web"]["qosConfig"] == {"ingressBandwidth": 0, "egressBandwidth": 0}


def test_one_limit_is_enough() -> None:
    given_ = node_snapshot(pod_usage("web", annotations={"koordinator.sh/networkQOS": '{"egressLimit":"80k"}'}))
    assert decided(given_).problems == ()
    assert pods_of(given_)["uid-web"]["qosConfig"] == {"ingressBandwidth": 0, "egressBandwidth": 10_000}


def test_another_policy_has_no_files() -> None:
    decision = decided(node_snapshot(network_policy="tc"))
    assert (decision.node, decision.pods) == (None, None)


def test_without_a_node_slo_nothing_is_decided() -> None:
    assert decide(snapshot(policy=None)) is None


class Folder:
    """Terway's folder on a node, and who keeps it. ``now`` is what is decided on."""

    def __init__(self, root: Path, *, observe_only: bool = False) -> None:
        self.host = Host.below(root)
        self.path = Path(self.host.var_lib_terway, "qos")
        self.now = node_snapshot(pod_usage("web"), **BOTH)
        self.reported: list[Problem] = []
        self.terway = TerwayQoS(self.host, lambda: self.now, self._report, None, observe_only=observe_only)

    def _report(self, _: str, problems: tuple[Problem, ...]) -> None:
        self.reported += problems

    def install(self) -> None:
        Path(self.host.var_lib_terway).mkdir(parents=True)

    def reconcile(self) -> list[str]:
        """The names of the files afterwards."""
        asyncio.run(self.terway.reconcile())
        return sorted(path.name for path in self.path.iterdir()) if self.path.is_dir() else []


def test_the_files_are_written_and_removed(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    folder.install()
    assert folder.reconcile() == [NODE_FILE, POD_FILE]
    folder.now = node_snapshot(network_policy="tc")
    assert folder.reconcile() == []


def test_a_file_that_says_it_already_is_left_alone(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    folder.install()
    folder.reconcile()
    before = (folder.path / POD_FILE).stat()
    folder.reconcile()
    after = (folder.path / POD_FILE).stat()
    assert (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns)


def test_a_file_that_somebody_else_changed_is_corrected(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    folder.install()
    folder.reconcile()
    right = (folder.path / NODE_FILE).read_text()
    (folder.path / NODE_FILE).write_text("hw_tx_bps_max 1\n")
    folder.reconcile()
    assert (folder.path / NODE_FILE).read_text() == right


def test_a_node_without_terway_is_said_once_and_gets_no_folder(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = Folder(tmp_path)
    folder.reconcile()
    folder.reconcile()
    assert caplog.text.count("network QoS through Terway is not available") == 1
    assert not Path(folder.host.var_lib_terway).exists()


def test_only_observed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = Folder(tmp_path, observe_only=True)
    folder.install()
    assert folder.reconcile() == []
    assert "observe only" in caplog.text


def test_what_is_only_observed_is_said_once_of_each_file(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = Folder(tmp_path, observe_only=True)
    folder.install()
    for _ in range(3):
        folder.reconcile()
    assert [caplog.text.count(f"{name} would be written") for name in (NODE_FILE, POD_FILE)] == [1, 1]


def test_a_node_that_loses_terway_again_is_told_of_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = Folder(tmp_path)
    folder.reconcile()
    folder.install()
    folder.reconcile()
    shutil.rmtree(folder.host.var_lib_terway)
    folder.reconcile()
    assert caplog.text.count("network QoS through Terway is not available") == 2


def test_a_folder_that_cannot_be_written_is_an_error_with_its_path(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    folder.install()
    folder.path.write_text("no folder")
    with pytest.raises(TerwayFilesError, match=NODE_FILE):
        folder.reconcile()


def test_the_agent_keeps_the_files(tmp_path: Path) -> None:
    node = NodeUnderTest(tmp_path)
    node.gates = ("TerwayQoS",)
    node.show_slo({"resourceQOSStrategy": {"policies": {"netQOSPolicy": "terway-qos"}}})
    folder = Path(node.machine.host.var_lib_terway)
    folder.mkdir(parents=True)

    async def story() -> None:
        async with node.running():
            await node.pass_seconds(15)

    asyncio.run(story())
    assert list(json.loads((folder / "qos" / POD_FILE).read_text())) == [UID]
