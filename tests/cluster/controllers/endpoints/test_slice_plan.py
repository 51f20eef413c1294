"""The spread of endpoints over slices, whatever happens to the pods."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from koordinator.api.meta import ObjectMeta
from koordinator.api.pod import Pod
from koordinator.cluster.controllers.endpoints.pod_endpoints import pod_endpoints
from koordinator.cluster.controllers.endpoints.slice_plan import MAX_ENDPOINTS, SliceContent, SlicePlan, plan_slices
from koordinator.cluster.controllers.endpoints.types import EndpointSlice, Service, ServicePort
from tests.cluster.controllers.endpoints.endpoint_objects import endpoint_pod, service


class _Slices:
    """The slices of one Service, as the plans leave them."""

    def __init__(self) -> None:
        self.there: dict[str, EndpointSlice] = {}
        self._made = 0

    def apply(self, of: Service, pods: Sequence[Pod]) -> SlicePlan:
        plan = plan_slices(of, pod_endpoints(of, pods), list(self.there.values()), {"n": "zone"})
        for each in plan.delete:
            del self.there[each.metadata.name]
        for each, content in plan.update:
            self._set(each.metadata.name, content)
        for content in plan.create:
            self._made += 1
            self._set(f"s{self._made}", content)
        return plan

    def _set(self, name: str, content: SliceContent) -> None:
        self.there[name] = EndpointSlice(
            metadata=ObjectMeta(name=name),
            address_type=content.address_type,
            endpoints=list(content.endpoints) or None,
            ports=content.ports,
        )

    def addresses(self) -> list[str]:
        return sorted(a for each in self.there.values() for one in each.endpoints or () for a in one.addresses)


def _pods(numbers: Sequence[int], ready: bool = True, http: int = 8080) -> list[Pod]:
    return [endpoint_pod(f"p{n}", f"10.0.{n // 250}.{n % 250}", ready=ready, http=http) for n in numbers]


def test_a_service_without_pods_has_one_slice_without_endpoints_which_the_first_pods_take() -> None:
    slices = _Slices()
    slices.apply(service(), [])
    ((name, found),) = slices.there.items()
    assert (found.endpoints, found.ports) == (None, None)
    slices.apply(service(), _pods([1]))
    assert list(slices.there) == [name]
    assert slices.apply(service(), _pods([1])) == SlicePlan()
    slices.apply(service(), [])
    assert [each.endpoints for each in slices.there.values()] == [None]


def test_a_slice_has_a_hundred_endpoints_at_most() -> None:
    slices = _Slices()
    slices.apply(service(), _pods(range(250)))
    assert sorted(len(each.endpoints or ()) for each in slices.there.values()) == [50, 100, 100]
    plan = slices.apply(service(), _pods(range(260)))
    assert (len(plan.update), plan.create, plan.delete) == (1, [], [])
    assert plan.update[0][1].endpoints[0].zone == "zone"


def test_one_pod_that_changes_costs_one_write() -> None:
    slices = _Slices()
    slices.apply(service(), _pods(range(250)))
    plan = slices.apply(service(), [*_pods([0], ready=False), *_pods(range(1, 250))])
    assert (len(plan.update), plan.create, plan.delete) == (1, [], [])


def test_a_port_that_changes_changes_the_slice_in_place() -> None:
    slices = _Slices()
    of = service(ServicePort(name="web", port=80, target_port="http"))
    slices.apply(of, _pods([1]))
    plan = slices.apply(of, _pods([1], http=9090))
    assert (len(plan.update), plan.create, plan.delete) == (1, [], [])
    assert [each.ports[0].port for each in slices.there.values() if each.ports] == [9090]


def test_addresses_of_another_family_than_those_of_the_service_are_not_listed() -> None:
    slices = _Slices()
    pods = [endpoint_pod("a", "10.0.0.1"), endpoint_pod("b", "fd00::1")]
    slices.apply(service(ip_families=["IPv4"]), pods)
    assert slices.addresses() == ["10.0.0.1"]
    slices.apply(service(ip_families=["IPv6", "IPv4"]), pods)
    assert {each.address_type: len(each.endpoints or ()) for each in slices.there.values()} == {"IPv4": 1, "IPv6": 1}


_STEP = st.dictionaries(st.integers(0, 240), st.tuples(st.booleans(), st.sampled_from([8080, 8081])), max_size=240)


@given(st.lists(_STEP, max_size=4))
def test_every_pod_is_in_exactly_one_slice_of_its_ports(steps: list[dict[int, tuple[bool, int]]]) -> None:
    of, slices = service(ServicePort(name="web", port=80, target_port="http")), _Slices()
    for step in steps:
        pods = [pod for n, (ready, http) in step.items() for pod in _pods([n], ready, http)]
        slices.apply(of, pods)
        ports = {pod.status.pod_ip: pod.spec.containers[0].ports[0].container_port for pod in pods}
        assert slices.addresses() == sorted(ports)
        assert slices.there
        for each in slices.there.values():
            endpoints = each.endpoints or []
            assert len(endpoints) <= MAX_ENDPOINTS
            assert bool(endpoints) or len(slices.there) == 1
            assert {ports[one.addresses[0]] for one in endpoints} == {port.port for port in each.ports or ()}
        assert slices.apply(of, list(reversed(pods))) == SlicePlan()
        msgspec.json.encode(list(slices.there.values()))
