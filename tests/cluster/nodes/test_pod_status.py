"""What is written about pods."""

from __future__ import annotations

import copy
from typing import Any

from koordinator.api.codec import convert
from koordinator.api.kubernetes_types.table import kind_type
from koordinator.cluster.nodes import pod_status
from koordinator.cluster.nodes.simulated_pod import SimulatedPod
from koordinator.cluster.patch import apply_strategic_patch
from tests.cluster.nodes.bound_pods import long_ago, pod_document


def _apply(patch: dict[str, Any], document: dict[str, Any]) -> dict[str, Any]:
    return apply_strategic_patch(copy.deepcopy(document), copy.deepcopy(patch), kind_type("v1", "Pod"))


def _document(**more: Any) -> dict[str, Any]:
    document = pod_document("p", "n", **more)
    document["metadata"]["uid"] = "u"
    return document


def _running(**more: Any) -> dict[str, Any]:
    document = _document(**more)
    patch = pod_status.running(convert(document, SimulatedPod), "10.128.0.1", "10.0.0.1", long_ago())
    return _apply(patch, document)


def _conditions(document: dict[str, Any]) -> dict[str, tuple[str, str | None]]:
    return {c["type"]: (c["status"], c.get("reason")) for c in document["status"]["conditions"]}


def test_running_keeps_the_condition_of_the_scheduler() -> None:
    assert _conditions(_running())["PodScheduled"] == ("True", None)


def test_a_pod_that_was_never_scheduled_says_that_it_has_a_node() -> None:
    document = _document()
    document["status"]["conditions"] = []
    patch = pod_status.running(convert(document, SimulatedPod), "10.128.0.1", "10.0.0.1", long_ago())
    assert _conditions(_apply(patch, document))["PodScheduled"] == ("True", None)


def test_running_fills_in_addresses_and_start_time() -> None:
    status = _running()["status"]
    assert (status["podIP"], status["hostIP"], status["startTime"]) == (
        "10.128.0.1",
        "10.0.0.1",
        "2026-01-01T00:00:00Z",
    )


def test_init_containers_have_ended_and_sidecars_run() -> None:
    init = [{"name": "setup", "image": "a"}, {"name": "proxy", "image": "b", "restartPolicy": "Always"}]
    first, second = _running(initContainers=init)["status"]["initContainerStatuses"]
    assert (first["state"]["terminated"]["exitCode"], list(second["state"])) == (0, ["running"])


def test_succeeded_says_so_in_containers_and_conditions() -> None:
    document = _running()
    document = _apply(pod_status.succeeded(convert(document, SimulatedPod), long_ago()), document)
    assert document["status"]["containerStatuses"][0]["state"]["terminated"]["reason"] == "Completed"
    assert _conditions(document) == {
        "PodScheduled": ("True", None),
        "PodReadyToStartContainers": ("False", None),
        "Initialized": ("True", "PodCompleted"),
        "Ready": ("False", "PodCompleted"),
        "ContainersReady": ("False", "PodCompleted"),
    }


def test_a_pod_that_was_stopped_is_never_taken_for_one_that_is_done() -> None:
    patch = pod_status.stopped(convert(_running(), SimulatedPod), long_ago())
    assert patch["status"]["phase"] == "Failed"
    assert patch["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 143


def test_every_patch_names_the_uid() -> None:
    pod = convert(_running(), SimulatedPod)
    for write in (pod_status.succeeded, pod_status.expired, pod_status.stopped):
        assert write(pod, long_ago())["metadata"] == {"uid": "u"}
