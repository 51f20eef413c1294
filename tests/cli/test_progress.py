"""How far a drain or a migration is, in one line."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from koordinator.api.codec import convert
from koordinator.api.drain_node import DrainNode
from koordinator.api.pod_migration_job import PodMigrationJob
from koordinator.cli import drain, migrate
from koordinator.cli.progress import Progress, follow


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
