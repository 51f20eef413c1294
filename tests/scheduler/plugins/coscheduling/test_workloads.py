"""Gangs that are pod groups of Workloads of scheduling.k8s.io."""

from __future__ import annotations

import msgspec
import pytest

from koordinator.api.codec import convert
from koordinator.api.generic_workload import GenericWorkload
from koordinator.api.pod import Pod, WorkloadReference
from koordinator.model.gang_declaration import gang_id_of, workload_of
from koordinator.scheduler.plugins.coscheduling.documents import explain_gang
from koordinator.scheduler.plugins.coscheduling.gang_cache import GangCache
from tests.scheduler.fakes import make_pod
from tests.scheduler.plugins.coscheduling.gang_fakes import gang_annotations, with_annotations

_KEY = "default/training"
_GANG = "default/training:workers"


def worker(number: int, replica: str = "", group: str = "workers") -> Pod:
    pod = make_pod(f"g-{number}")
    reference = WorkloadReference(name="training", pod_group=group, pod_group_replica_key=replica)
    return msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, workload_ref=reference))


def workload(minimum: int | None) -> GenericWorkload:
    """Without a minimum, the pods are scheduled one by one."""
    policy = {"basic": {}} if minimum is None else {"gang": {"minCount": minimum}}
    groups = [{"name": "workers", "policy": policy}]
    metadata = {"name": "training", "namespace": "default"}
    return convert({"metadata": metadata, "spec": {"podGroups": groups}}, GenericWorkload)


def cache_with(*pods: Pod, reads_workloads: bool = True) -> GangCache:
    cache = GangCache(reads_workloads=reads_workloads)
    for pod in pods:
        cache.set_pod(pod, "")
    return cache


def test_members_wait_for_the_workload_and_for_as_many_as_it_says() -> None:
    cache = cache_with(worker(0))
    assert cache.admission_error(worker(0)).endswith(f"there is no Workload {_KEY}")
    cache.set_workload(_KEY, workload(2))
    assert f"{_GANG} has 1 of 2 pods" in cache.admission_error(worker(0))
    cache.set_pod(worker(1), "")
    assert cache.admission_error(worker(0)) == ""
    assert set(cache.take_instructions().activate) == {"uid-g-0", "uid-g-1"}


def test_the_workload_may_be_there_first_and_change() -> None:
    cache = cache_with()
    cache.set_workload(_KEY, workload(3))
    for number in range(2):
        cache.set_pod(worker(number), "")
    assert cache.admission_error(worker(0))
    cache.set_workload(_KEY, workload(2))
    assert not cache.admission_error(worker(0))
    cache.set_workload(_KEY, None)
    assert cache.admission_error(worker(0)).endswith(f"there is no Workload {_KEY}")


def test_each_replica_of_a_pod_group_is_a_gang() -> None:
    cache = cache_with(worker(0, "a"), worker(1, "b"), worker(2, "b"))
    cache.set_workload(_KEY, workload(2))
    assert sorted(cache.gangs) == [f"{_GANG}:a", f"{_GANG}:b"]
    assert [bool(cache.admission_error(worker(number, key))) for number, key in ((0, "a"), (1, "b"))] == [True, False]


def test_pods_of_a_basic_group_wait_for_nobody() -> None:
    cache = cache_with(worker(0), worker(1))
    cache.set_workload(_KEY, workload(None))
    cache.begin_attempt("uid-g-0")
    assert cache.permit("uid-g-0") is None


def test_a_pod_group_that_is_not_there_is_named() -> None:
    cache = cache_with(worker(0, group="drivers"))
    cache.set_workload(_KEY, workload(2))
    assert "the Workload default/training has no pod group drivers" in cache.admission_error(worker(0, group="drivers"))


def test_without_the_gate_pods_are_placed_one_by_one() -> None:
    cache = cache_with(worker(0), reads_workloads=False)
    assert cache.admission_error(worker(0)) == ""
    declaration = cache.gangs[_GANG].declaration
    assert declaration is not None
    assert "feature gate GenericWorkload" in declaration.problems[0]


def test_a_gang_that_has_gone_is_forgotten() -> None:
    cache = cache_with(worker(0))
    cache.remove_pod("uid-g-0")
    cache.set_workload(_KEY, workload(2))
    assert cache.gangs == {}


def test_koordinators_own_declaration_comes_first() -> None:
    pod = with_annotations(worker(0), gang_annotations("mine", 1))
    assert (gang_id_of(pod), workload_of(pod)) == ("default/mine", "")


@pytest.mark.parametrize("minimum", [2, None])
def test_the_explanation_says_which_api_declares_it(minimum: int | None) -> None:
    cache = cache_with(worker(0))
    cache.set_workload(_KEY, workload(minimum))
    document = explain_gang(cache, cache.gangs[_GANG], lambda member: "")
    assert document.declared_by == "the Workload default/training (scheduling.k8s.io)"
    assert document.min_member == (minimum or 1)
