"""How far a drain or a migration is, in one line."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from koordinator.api.codec import convert
from koordinator.api.drain_node import DrainNode
from koordinator.api.kinds import CUSTOM_RESOURCE_DEFINITIONS, DRAIN_NODES, NODES
from koordinator.api.manifests import custom_resource_definitions
from koordinator.api.pod_migration_job import PodMigrationJob
from koordinator.cli import drain, migrate
from koordinator.cli.explain_cluster import Cluster
from koordinator.cli.explain_failure import INTERRUPTED, NOT_THERE
from koordinator.cli.main import main, make_parser
from koordinator.cli.progress import Progress, follow, run_with_client
from koordinator.kube.client import KubeClient
from tests.cli.explained_cluster import explained_cluster


def drained(looks: int = 1, **status: Any) -> Progress:
    return drain.progress_of(convert({"spec": {"nodeName": "n1"}, "status": status}, DrainNode), looks)


def migrated(looks: int = 1, **status: Any) -> Progress:
    spec = {"podRef": {"namespace": "shop", "name": "web"}}
    return migrate.progress_of(convert({"spec": spec, "status": status}, PodMigrationJob), looks)


def test_a_drain_says_how_many_pods_are_moved_and_what_is_in_its_way() -> None:
    blocked = {"type": "UnmigratablePodExists", "status": "True", "message": "shop/db has no controller"}
    summary = {"Succeed": 2, "Migrating": 1, "Unmigratable": 1, "Failed": 0}
    progress = drained(phase="Running", podMigrationSummary=summary, conditions=[blocked])
    assert progress == Progress(
        "n1: running, 2 of 4 pods moved; 1 migrating, 1 unmigratable; shop/db has no controller", None
    )


def test_a_drain_that_is_complete_or_given_up_ends_the_command() -> None:
    done = drained(phase="Complete", podMigrationSummary={"Succeed": 1})
    assert done == Progress("n1 is empty, 1 pod moved; kubectl uncordon n1 lets pods onto it again", 0)
    assert drained(phase="Aborted", message="node deleted").status == drain.FAILED


@pytest.mark.parametrize("progress_of", [drained, migrated])
def test_a_descheduler_that_does_not_come_is_named_after_a_while(progress_of: Any) -> None:
    assert progress_of().line.endswith("koord-descheduler has not taken it up")
    assert "does it run" in progress_of(looks=9).line


def test_a_migration_says_its_step_and_its_end() -> None:
    waits = {"type": "ReservationScheduled", "status": "False", "message": "0/3 nodes are available"}
    running = migrated(phase="Running", nodeName="n2", conditions=[waits])
    assert running == Progress("shop/web: running (to n2): 0/3 nodes are available", None)
    moved = migrated(phase="Succeeded", nodeName="n2", podRef={"namespace": "shop", "name": "web-2"})
    assert moved == Progress("shop/web was moved: shop/web-2 on n2 is in its place", 0)
    failed = migrated(phase="Failed", message="it took too long")
    assert failed == Progress("shop/web was not moved: it took too long", migrate.FAILED)


def test_it_is_followed_until_it_has_ended() -> None:
    steps = iter([Progress("a"), Progress("b"), Progress("done", 0)])
    shown: list[str] = []

    async def read() -> Progress:
        return next(steps)

    async def at_once(duration: float) -> None:
        return None

    assert asyncio.run(follow(read, lambda progress: shown.append(progress.line), at_once)) == 0
    assert shown == ["a", "b", "done"]


def test_after_an_interruption_it_is_said_what_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async def interrupted(client: KubeClient, cluster: Cluster) -> int:
        raise KeyboardInterrupt

    with explained_cluster(tmp_path) as cluster:
        options = make_parser(["drain"]).parse_args(["drain", "n1", f"--kubeconfig={cluster.kubeconfig}"])
        assert run_with_client(options, interrupted, lambda: "it goes on without you") == INTERRUPTED
    assert capsys.readouterr().err == "koord: it goes on without you\n"


def test_a_node_that_is_not_there_is_answered_with_one_that_may_be_meant(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with explained_cluster(tmp_path) as cluster:
        cluster.create(NODES, {"metadata": {"name": "worker-1"}})
        assert main(["drain", "worker-2", f"--kubeconfig={cluster.kubeconfig}"]) == NOT_THERE
    assert "did you mean worker-1?" in capsys.readouterr().err


def test_a_drain_is_created_found_again_and_given_up(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with explained_cluster(tmp_path) as cluster:
        for definition in custom_resource_definitions():
            cluster.create(CUSTOM_RESOURCE_DEFINITIONS, definition)
        cluster.create(NODES, {"metadata": {"name": "n1"}})
        command = ["drain", "n1", f"--kubeconfig={cluster.kubeconfig}"]
        assert main([*command, "--force", "--no-wait"]) == 0
        (found,) = cluster.do(cluster.client.list(DRAIN_NODES)).items
        assert (found.spec.node_name, found.spec.force) == ("n1", True)
        assert main([*command, "--no-wait"]) == 0
        assert main([*command, "--cancel"]) == 0
        (found,) = cluster.do(cluster.client.list(DRAIN_NODES)).items
    assert found.spec.confirm_state == "Aborted"
    name = found.metadata.name
    assert [line.split(";")[0] for line in capsys.readouterr().out.splitlines()] == [
        f"drainnode/{name} created",
        f"drainnode/{name} goes on",
        f"drainnode/{name} is given up",
    ]
