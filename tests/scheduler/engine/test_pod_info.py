"""The facts that are derived from a pod."""

from __future__ import annotations

import msgspec

from koordinator.api.pod import Container
from koordinator.api.resource_names import CPU, MEMORY
from koordinator.scheduler.engine.pod_info import make_pod_info
from tests.scheduler.fakes import make_pod


def test_requests_are_in_the_units_of_the_columns() -> None:
    info = make_pod_info(make_pod("p", cpu="1500m", memory="1Gi", priority=7))
    assert info.request.amounts == {CPU: 1500, MEMORY: 2**30}
    assert info.request.non_zero == (1500, 2**30)
    assert (info.key, info.uid, info.priority) == ("default/p", "uid-p", 7)


def test_a_container_without_requests_counts_with_the_defaults_in_scores_only() -> None:
    pod = make_pod("p", cpu="1", memory="1Gi")
    spec = msgspec.structs.replace(pod.spec, containers=[*pod.spec.containers, Container(name="bare")])
    info = make_pod_info(msgspec.structs.replace(pod, spec=spec))
    assert info.request.amounts == {CPU: 1000, MEMORY: 2**30}
    assert info.request.non_zero == (1100, 2**30 + 200 * 2**20)
