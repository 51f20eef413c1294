"""Random pods against quotas that fill up: what users are told, and what is counted, as with the original."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest

from koordinator.api.document import Document, copied
from tests.model.quota_tree.quota_objects import P
from tests.real.control_plane import ControlPlane
from tests.real.manager_cluster import install, prepare
from tests.real.manager_process import OURS, manager
from tests.real.programs import RealPrograms
from tests.real.quota_cases import pod, quota
from tests.real.quota_users import ADMISSION, PODS, QUOTAS, Users

_PODS = 90
_GPU = "nvidia.com/gpu"
_STORAGE = "ephemeral-storage"
_ALL: Document = {"cpu": "14", "memory": "12Gi", _STORAGE: "20G", _GPU: 5}
_SPELLED: Sequence[Mapping[str, Sequence[str | int]]] = (
    {
        "cpu": ("250m", "0.5", "1", 1, "1500m", "0"),
        "memory": ("128Mi", "1Gi", "1.5Gi", "0Mi"),
        _STORAGE: ("500M", "1G", "0"),
    },
    {"cpu": ("500e-3", "1500e-3", "0"), "memory": ("500M", 1000000, "0"), _STORAGE: ("1Gi", "500Mi", "0Mi")},
)
"""Amounts in the units of one pod; of two units in one pod, another may be shown than by the original."""
LIMITED = (
    quota("every", namespace="default", max=_ALL, min={}),
    quota("few", namespace="default", max={"cpu": "6", "memory": "4Gi"}, min={}),
    quota("storage", namespace="default", max={_STORAGE: "9G"}, min={}),
    quota("none-of-pods", namespace="default", max={"disk": 1}, min={}),
    quota("admitted", namespace="default", max=_ALL, min={}, annotations={"admission": {"cpu": "4", "memory": "40Gi"}}),
    quota("used", namespace="default", max=_ALL, min={}, annotations={"child-request": {"cpu": "9", "memory": "1G"}}),
    quota("broken", namespace="default", max=_ALL, min={}, annotations={"child-request": {"cpu": "1"}}),
)


def drawn_pods(seed: int) -> Iterator[Document]:
    random = Random(seed)
    for number in range(_PODS):
        yield _drawn_pod(random, number)


def _drawn_pod(random: Random, number: int) -> Document:
    made = pod(f"p{number}", random.choice(LIMITED)["metadata"]["name"])
    spec, units = made["spec"], random.choice(_SPELLED)
    spec["containers"] = [_container(random, f"c{index}", units) for index in range(random.randint(1, 3))]
    spec["initContainers"] = [_container(random, f"i{index}", units) for index in range(random.choice((0, 0, 1, 2)))]
    for container in spec["initContainers"]:
        if random.random() < 0.4:
            container["restartPolicy"] = "Always"
    if random.random() < 0.15:
        spec["resources"] = {"requests": {"cpu": "5", "memory": "3Gi"}}
    return made


def _container(random: Random, name: str, units: Mapping[str, Sequence[str | int]]) -> Document:
    requests: dict[str, Any] = {
        resource: random.choice(amounts) for resource, amounts in units.items() if random.random() < 0.6
    }
    limits = {_GPU: 1} if random.random() < 0.15 else {}
    return {"name": name, "image": "i", "resources": {"requests": requests, "limits": limits}}


def counted(users: Users) -> dict[str, Any]:
    """What is used of each quota, as it is written there."""
    annotations = {each["metadata"]["name"]: users.stored(each["metadata"]["name"])["metadata"] for each in LIMITED}
    return {name: metadata["annotations"].get(f"{P}/child-request", "") for name, metadata in annotations.items()}


def fill(users: Users) -> None:
    for document in LIMITED:
        users.notify("POST", QUOTAS, document)
    for document in LIMITED:
        users.wait(201, "POST", f"{PODS}?dryRun=All", pod("seen", document["metadata"]["name"]))
    for document in drawn_pods(seed=7):
        users.notify("POST", PODS, copied(document))


def clear(cluster: ControlPlane) -> None:
    for document in drawn_pods(seed=7):
        cluster.request("DELETE", f"{PODS}/{document['metadata']['name']}?gracePeriodSeconds=0")
    for document in LIMITED:
        cluster.request("DELETE", f"{QUOTAS}/{document['metadata']['name']}")


@pytest.fixture(scope="module")
def cluster(real_programs: RealPrograms, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    with ControlPlane(real_programs.kubernetes, tmp_path_factory.mktemp("counting-control-plane")) as plane:
        prepare(plane)
        yield plane


def test_random_pods_are_counted_as_the_original_does(
    real_programs: RealPrograms, cluster: ControlPlane, tmp_path: Path
) -> None:
    reported: list[list[tuple[int, str]]] = []
    used: list[dict[str, Any]] = []
    for command in ((str(real_programs.original / "koord-manager"),), OURS):
        install(cluster)
        users = Users(cluster)
        with manager(command, cluster.kubeconfig, tmp_path / Path(command[0]).name, arguments=ADMISSION) as running:
            running.wait_ready()
            fill(users)
            running.stop()
        reported.append(users.reported)
        used.append(counted(users))
        install(cluster)
        clear(cluster)
    assert reported[1] == reported[0]
    assert used[1] == used[0]
    refused = [message for status, message in reported[1] if status >= 400]
    assert len(refused) >= _PODS / 5
    assert all("exceeded quota: default/" in message for message in refused)
    assert json.loads(used[1]["every"]).keys() == _ALL.keys()
