"""Users and quotas: the same requests to a real API server, once with the original's webhooks and once with ours."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from koordinator.api.document import Document
from tests.model.quota_tree.quota_objects import P, amounts
from tests.real.control_plane import ControlPlane
from tests.real.manager_cluster import install, prepare
from tests.real.manager_process import OURS, manager
from tests.real.programs import RealPrograms
from tests.real.quota_cases import pod, quota
from tests.real.quota_users import ADMISSION, PODS, QUOTAS, Users

TOP = quota("top", namespace="default", is_parent=True, min=amounts(4, 100))
LEAF = quota("leaf", namespace="default", parent="top", min=amounts(4, 0), max=amounts(4, 100))


def with_requests(document: Document, **requests: str) -> Document:
    document["spec"]["containers"][0]["resources"] = {"requests": requests}
    return document


def build_and_use(users: Users) -> None:
    """A tree, pods until it is full, and everything away again, from the bottom up and without pauses."""
    users.notify("POST", QUOTAS, TOP)
    users.notify("POST", QUOTAS, LEAF)
    users.notify("POST", QUOTAS, quota("greedy", namespace="default", parent="top", min=amounts(1, 0)))
    users.notify("POST", QUOTAS, quota("top", namespace="kube-system"))
    users.wait(201, "POST", PODS, with_requests(pod("first", "leaf"), **{"ephemeral-storage": "1"}))
    for number in range(3):
        users.notify("POST", PODS, with_requests(pod(f"p{number}", "leaf"), cpu="1500m"))
    users.notify("POST", PODS, pod("in-parent", "top"))
    users.wait(400, "PATCH", f"{QUOTAS}/leaf?dryRun=All", {"metadata": {"labels": {f"{P}/is-parent": "true"}}})
    users.notify("DELETE", f"{QUOTAS}/top")
    for name in ("first", "p0", "p1"):
        users.notify("DELETE", f"{PODS}/{name}?gracePeriodSeconds=0")
    users.wait(200, "DELETE", f"{QUOTAS}/leaf")
    users.notify("DELETE", f"{QUOTAS}/top")


@pytest.fixture(scope="module")
def cluster(real_programs: RealPrograms, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    with ControlPlane(real_programs.kubernetes, tmp_path_factory.mktemp("quota-control-plane")) as plane:
        prepare(plane)
        yield plane


def test_users_are_notified_the_same(real_programs: RealPrograms, cluster: ControlPlane, tmp_path: Path) -> None:
    reported: list[Any] = []
    for command in ((str(real_programs.original / "koord-manager"),), OURS):
        install(cluster)
        users = Users(cluster)
        with manager(command, cluster.kubeconfig, tmp_path / Path(command[0]).name, arguments=ADMISSION) as running:
            running.wait_ready()
            build_and_use(users)
        reported.append(users.reported)
    assert reported[1] == reported[0]
    assert [status for status, _ in reported[1]].count(400) > 0


def test_what_was_never_stored_is_not_counted(cluster: ControlPlane, tmp_path: Path) -> None:
    install(cluster)
    users = Users(cluster)
    with manager(OURS, cluster.kubeconfig, tmp_path, arguments=ADMISSION) as running:
        running.wait_ready()
        users.notify("POST", f"{QUOTAS}?dryRun=All", TOP)
        users.notify("POST", QUOTAS, TOP)
        users.notify("POST", QUOTAS, LEAF)
        users.notify("DELETE", f"{QUOTAS}/leaf?dryRun=All")
        users.wait(201, "POST", f"{PODS}?dryRun=All", with_requests(pod("p", "leaf"), cpu="3"))
        users.notify("POST", f"{PODS}?dryRun=All", with_requests(pod("p", "leaf"), cpu="3"))
        users.notify("POST", PODS, with_requests(pod("p", "leaf"), cpu="3"))
        users.notify("DELETE", f"{QUOTAS}/top")
        used = users.stored("leaf")["metadata"]["annotations"][f"{P}/child-request"]
    assert [status for status, _ in users.reported] == [201, 201, 201, 200, 201, 201, 400]
    assert json.loads(used) == {"cpu": "3"}
