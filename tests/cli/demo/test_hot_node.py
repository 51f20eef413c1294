"""The node that runs hot: what is seen of it, how its pods are kept, and that each claim fails when it is not so."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import yaml
from rich.console import Console

from koordinator.api.codec import decode, encode
from koordinator.api.kinds import PODS, REPLICA_SETS, Kind
from koordinator.api.pod import Pod
from koordinator.api.pod_migration_job import FAILED, SUCCEEDED, PodMigrationJob
from koordinator.api.rebalance_explanation import RebalanceExplanation, StayingPods
from koordinator.cli.demo.hot_node import (
    CRAWLER,
    HOT,
    REPLICAS,
    Crawler,
    HotNode,
    Move,
    availability_claim,
    cooling_claim,
    descheduler_configuration,
    is_under_way,
    staying_claim,
)
from koordinator.cli.demo.observation import Day
from koordinator.cli.demo.report import print_report
from koordinator.descheduler.catalogue import Catalogue
from koordinator.descheduler.configuration.loading import load_configuration
from koordinator.descheduler.main import BUILT_IN
from koordinator.kube.interface import Client
from tests.cli.demo.cooled_node import a_cooled_node


def crawler(name: str, node: str, *, ready: bool = True, leaving: bool = False) -> Pod:
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": CRAWLER, "uid": "1", "controller": True}
    metadata: dict[str, Any] = {"name": name, "namespace": "default", "ownerReferences": [owner]}
    if leaving:
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    status = {"conditions": [{"type": "Ready", "status": "True" if ready else "False"}]}
    return decode(encode({"metadata": metadata, "spec": {"nodeName": node}, "status": status}), Pod)


def job(name: str, pod: str, phase: str, node: str = "", bound: str = "") -> PodMigrationJob:
    status: dict[str, Any] = {"phase": phase, "nodeName": node}
    if bound:
        status["podRef"] = {"namespace": "default", "name": bound}
    document = {"metadata": {"name": name}, "spec": {"podRef": {"name": pod}}, "status": status}
    return decode(encode(document), PodMigrationJob)


def test_a_node_that_cools_holds_every_claim() -> None:
    node = a_cooled_node()
    assert [claim(node).holds for claim in (cooling_claim, availability_claim, staying_claim)] == [True] * 3
    assert "moved 2 of 4 pods" in cooling_claim(node).text


def _one_move(phase: str, replacement: str, reserved: str, target: str) -> dict[str, Any]:
    move = Move("crawler-1", 5.8, phase, replacement, reserved, target)
    return {"began": {"job": 5.0}, "moves": {"job": move}}


def test_one_move_is_enough() -> None:
    changes = _one_move(SUCCEEDED, "crawler-4", "node-3", "node-3")
    assert cooling_claim(replace(a_cooled_node(), **changes)).holds


def test_a_node_has_not_cooled_while_a_pod_is_on_its_way() -> None:
    node = replace(a_cooled_node(), used=[(4.0, 54), (6.5, 33), (7.0, 34)])
    assert node.after() == (7.0, 34)


@pytest.mark.parametrize(
    "changes",
    [
        {"used": [(4.0, 39), (5.0, 40), (7.0, 33)]},
        {"used": [(4.0, 54), (7.0, 41)]},
        {"moves": {}},
        _one_move(FAILED, "", "node-3", ""),
        _one_move(SUCCEEDED, "crawler-4", "", "node-3"),
        _one_move(SUCCEEDED, "crawler-4", "node-4", "node-3"),
        _one_move(SUCCEEDED, "crawler-4", HOT, HOT),
    ],
    ids=["was not hot", "stays hot", "nobody moved", "failed", "nothing reserved", "elsewhere", "back"],
)
def test_a_node_that_is_not_cooled_by_reserved_moves_fails_its_claim(changes: dict[str, Any]) -> None:
    assert not cooling_claim(replace(a_cooled_node(), **changes)).holds


@pytest.mark.parametrize("ready", [[], [(3.0, 4), (5.0, 2)]])
def test_two_pods_away_at_once_fail_the_claim(ready: list[tuple[float, int]]) -> None:
    assert not availability_claim(replace(a_cooled_node(), ready=ready)).holds


def test_a_pod_that_stays_for_no_reason_fails_the_claim() -> None:
    stays = [StayingPods(pods=1, examples=["a"]), StayingPods(why="bare", pods=82, examples=["b"])]
    rebalance = RebalanceExplanation(rebalance="p", pods=83, stays=stays)
    assert not staying_claim(replace(a_cooled_node(), rebalance=rebalance)).holds


def test_somebody_else_who_is_moved_fails_the_claim() -> None:
    moves = {"job": Move("feed-02", 8.0, SUCCEEDED, "feed-03", "node-3", "node-3")}
    assert not staying_claim(replace(a_cooled_node(), moves=moves)).holds


def test_a_move_is_seen_when_its_job_has_ended() -> None:
    seen = HotNode()
    seen.see(4.0, 54, [crawler("crawler-0", HOT)], [job("a", "crawler-0", "Running", "node-3")])
    assert (seen.began, seen.moves) == ({"a": 4.0}, {})
    seen.see(5.0, 33, [crawler("crawler-4", "node-3")], [job("a", "crawler-0", SUCCEEDED, "node-3", "crawler-4")])
    assert seen.succeeded() == [Move("crawler-0", 5.0, SUCCEEDED, "crawler-4", "node-3", "node-3")]


def test_pods_that_leave_are_not_ready_and_none_counts_before_all_were() -> None:
    seen = HotNode()
    pods = [crawler(f"crawler-{number}", HOT) for number in range(REPLICAS)]
    seen.see(3.0, 10, pods[:2], [])
    seen.see(4.0, 54, pods, [])
    seen.see(5.0, 54, [*pods[:2], crawler("a", HOT, leaving=True), crawler("b", HOT, ready=False)], [])
    assert seen.ready == [(4.0, 4), (5.0, 2)]


class Created:
    """Keeps what is created."""

    def __init__(self) -> None:
        self.pods: list[dict[str, Any]] = []

    async def get(self, kind: Kind[Any], name: str, namespace: str) -> Any:
        assert (kind, name, namespace) == (REPLICA_SETS, CRAWLER, "default")
        return SimpleNamespace(metadata=SimpleNamespace(uid="1"))

    async def create(self, kind: Kind[Any], document: dict[str, Any], namespace: str) -> None:
        assert (kind, namespace) == (PODS, "default")
        self.pods.append(document)


def kept(*looks: Sequence[Pod], begins: bool = True) -> list[tuple[str, str | None]]:
    """The names of the pods that are created while the watch shows these pods, and the nodes that they name."""

    async def scenario() -> list[dict[str, Any]]:
        client, shown = Created(), list[Pod]()
        controller = Crawler(cast("Client", client), 0)
        keeping = asyncio.create_task(controller.keep(lambda: shown))
        if begins:
            await controller.begin()
        for pods in looks:
            shown = list(pods)
            controller.wake()
            for _ in range(5):
                await asyncio.sleep(0)
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)
        return client.pods

    return [(each["metadata"]["name"], each["spec"].get("nodeName")) for each in asyncio.run(scenario())]


FIRST = [(f"crawler-{number}", HOT) for number in range(REPLICAS)]


def test_the_first_pods_are_bound_by_hand_when_it_is_time() -> None:
    assert kept([], begins=False) == []
    assert kept([]) == FIRST


def test_a_pod_that_leaves_is_replaced_at_once_by_one_that_the_scheduler_places() -> None:
    pods = [crawler(name, HOT, leaving=name == "crawler-2") for name, _ in FIRST]
    assert kept([], pods) == [*FIRST, ("crawler-4", None)]


def test_a_pod_that_the_watch_has_not_shown_yet_is_not_created_again() -> None:
    pods = [crawler(name, HOT) for name, _ in FIRST]
    assert kept([], pods[:2], pods, pods[1:], pods[1:]) == [*FIRST, ("crawler-4", None)]


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ({"phase": "Running"}, True),
        ({"phase": "Running", "status": "ReservationCreated"}, True),
        ({"phase": "Running", "status": "ReservationScheduled"}, True),
        ({"phase": "Running", "status": "ReservationScheduled", "reason": "Unschedulable"}, False),
        ({"phase": "Running", "status": "Eviction", "reason": "Evicting"}, False),
        ({"phase": "Pending"}, False),
        ({"phase": SUCCEEDED}, False),
    ],
)
def test_a_job_is_under_way_as_long_as_it_needs_no_simulated_time(status: dict[str, str], expected: bool) -> None:
    document = {"metadata": {"name": "a"}, "spec": {"podRef": {"name": "crawler-0"}}, "status": status}
    assert is_under_way(decode(encode(document), PodMigrationJob)) is expected


def test_the_report_says_who_moved_where_and_why_others_stayed() -> None:
    console = Console(file=io.StringIO(), width=120)
    print_report(Day(hot_node=a_cooled_node(), capacity={"a": 1_000}), [], console)
    output = cast("io.StringIO", console.file).getvalue()
    for words in ("54 % used", "moved to node-3 as crawler-4", "33 % used", "pod does not have any ownerRefs"):
        assert words in output


def test_the_descheduler_takes_its_configuration(tmp_path: Path) -> None:
    path = tmp_path / "descheduler.yaml"
    path.write_text(yaml.safe_dump(descheduler_configuration(10251)))
    configuration = load_configuration(path, Catalogue(BUILT_IN, lambda: ()))
    assert [profile.document.name for profile in configuration.profiles] == ["koord-descheduler"]
