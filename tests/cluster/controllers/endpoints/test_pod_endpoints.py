"""Which pods a Service lists, and how Endpoints show them."""

from __future__ import annotations

import msgspec
import pytest

from koordinator.api.meta import ObjectMeta
from koordinator.cluster.controllers.endpoints.pod_endpoints import pod_endpoints, service_labels
from koordinator.cluster.controllers.endpoints.subsets import MAX_ADDRESSES, endpoint_subsets
from koordinator.cluster.controllers.endpoints.types import EndpointPort, ServicePort
from tests.cluster.controllers.endpoints.endpoint_objects import endpoint_pod, service


@pytest.mark.parametrize(
    ("ready", "going", "publishes", "expected"),
    [
        (True, False, False, (True, True, False)),
        (False, False, False, (False, False, False)),
        (True, True, False, (False, True, True)),
        (False, True, True, (True, False, True)),
    ],
)
def test_an_endpoint_is_ready_when_its_pod_is_and_stays(
    ready: bool, going: bool, publishes: bool, expected: tuple[bool, bool, bool]
) -> None:
    pod = endpoint_pod("a", "10.0.0.1", ready=ready, going=going)
    (found,) = pod_endpoints(service(publish_not_ready_addresses=publishes), [pod])
    assert (found.is_ready, found.serving, found.terminating) == expected


def test_pods_that_have_ended_or_have_no_address_are_left_out() -> None:
    there = endpoint_pod("there", "fd00::1")
    ended = msgspec.structs.replace(there, status=msgspec.structs.replace(there.status, phase="Succeeded"))
    found = pod_endpoints(service(), [there, ended, endpoint_pod("new", ""), endpoint_pod("odd", "10.0.0.999")])
    assert [(each.pod, each.family) for each in found] == [(there, "IPv6")]


def test_ports_go_by_the_names_that_each_pod_gives_them() -> None:
    ports = (ServicePort(name="web", port=80, target_port="http"), ServicePort(name="dns", port=53, target_port="dns"))
    found = pod_endpoints(service(*ports), [endpoint_pod("a", "10.0.0.1"), endpoint_pod("b", "10.0.0.2", http=9090)])
    assert [each.ports for each in found] == [
        (EndpointPort(name="web", port=8080),),
        (EndpointPort(name="web", port=9090),),
    ]


def test_a_host_name_counts_in_the_service_of_its_subdomain_alone() -> None:
    pod = endpoint_pod("a", "10.0.0.1")
    for subdomain, expected in (("web", "h"), ("other", "")):
        named = msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, hostname="h", subdomain=subdomain))
        assert [each.hostname for each in pod_endpoints(service(), [named])] == [expected]


def test_subsets_are_of_addresses_with_the_same_ports() -> None:
    ports = (ServicePort(name="web", port=80, target_port="http"), ServicePort(name="all", port=81, target_port=9000))
    pods = [
        endpoint_pod("a", "10.0.0.1"),
        endpoint_pod("b", "10.0.0.2", ready=False),
        endpoint_pod("c", "10.0.0.3", http=9090),
        endpoint_pod("d", "10.0.0.4", going=True),
        endpoint_pod("e", "fd00::1"),
    ]
    of = service(*ports)
    subsets, is_cut = endpoint_subsets(of, pod_endpoints(of, pods))
    shown = [
        ([a.ip for a in each.addresses], [a.ip for a in each.not_ready_addresses], [port.port for port in each.ports])
        for each in subsets
    ]
    assert not is_cut
    assert shown == [
        (["10.0.0.1"], ["10.0.0.2"], [8080]),
        (["10.0.0.1", "10.0.0.3"], ["10.0.0.2"], [9000]),
        (["10.0.0.3"], [], [9090]),
    ]


def test_endpoints_have_a_bound_and_ready_addresses_come_first() -> None:
    pods = [endpoint_pod(f"p{n}", f"10.0.{n // 250}.{n % 250}", ready=n > 0) for n in range(MAX_ADDRESSES + 1)]
    ((subset,), is_cut) = endpoint_subsets(service(), pod_endpoints(service(), pods))
    assert (len(subset.addresses), len(subset.not_ready_addresses), is_cut) == (MAX_ADDRESSES, 0, True)


def test_the_labels_of_a_service_are_those_of_its_lists() -> None:
    of = service(cluster_ip="None")
    of = msgspec.structs.replace(of, metadata=ObjectMeta(name="web", labels={"team": "a"}))
    assert service_labels(of) == {"team": "a", "service.kubernetes.io/headless": ""}
