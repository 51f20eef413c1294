"""What pods request and are limited to, as ``/metrics/resources`` shows it."""

from __future__ import annotations

import msgspec
from prometheus_client.parser import text_string_to_metric_families

from koordinator.api.pod import Pod, ResourceList
from koordinator.api.quantity import Quantity
from koordinator.scheduler.services.pod_resources import add_pod_resources
from tests.scheduler.fakes import make_pod
from tests.scheduler.services.service_requests import send


def shown(*pods: Pod, leading: bool = True) -> dict[tuple[str, str, str], tuple[float, dict[str, str]]]:
    """(metric, pod, resource) -> value and the other labels."""
    response = send(lambda server: add_pod_resources(server, lambda: pods, lambda: leading), "/metrics/resources")
    assert response.status == 200
    found = {}
    for family in text_string_to_metric_families(response.text):
        assert family.type == "gauge"
        for sample in family.samples:
            labels = dict(sample.labels)
            found[sample.name, labels.pop("pod"), labels.pop("resource")] = sample.value, labels
    return found


def with_limits(pod: Pod, **limits: str) -> Pod:
    (container,) = pod.spec.containers
    amounts: ResourceList = {name.replace("_", "-"): Quantity.parse(text) for name, text in limits.items()}
    resources = msgspec.structs.replace(container.resources, limits=amounts)
    container = msgspec.structs.replace(container, resources=resources)
    return msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, containers=[container]))


def test_requests_have_the_labels_of_kube_scheduler() -> None:
    found = shown(make_pod("p", cpu="250m", memory="1Gi", node="a", priority=7))
    common = {"namespace": "default", "node": "a", "scheduler": "koord-scheduler", "priority": "7"}
    assert found == {
        ("kube_pod_resource_request", "p", "cpu"): (0.25, {**common, "unit": "cores"}),
        ("kube_pod_resource_request", "p", "memory"): (2.0**30, {**common, "unit": "bytes"}),
    }


def test_a_pod_without_node_and_priority_has_empty_labels() -> None:
    (_, labels) = shown(make_pod("p", priority=None))["kube_pod_resource_request", "p", "cpu"]
    assert (labels["node"], labels["priority"]) == ("", "")


def test_limits_are_a_metric_of_their_own() -> None:
    found = shown(with_limits(make_pod("p"), cpu="2", hugepages_2Mi="4Mi", ephemeral_storage="1Gi"))
    limits = {key[2]: (value, labels["unit"]) for key, (value, labels) in found.items() if key[0].endswith("limit")}
    assert limits == {
        "cpu": (2.0, "cores"),
        "hugepages-2Mi": (4.0 * 2**20, "bytes"),
        "ephemeral-storage": (2.0**30, "bytes"),
    }


def test_other_resources_have_no_unit() -> None:
    found = shown(with_limits(make_pod("p"), **{"example.com/gpu": "1"}))
    assert found["kube_pod_resource_limit", "p", "example.com/gpu"][1]["unit"] == ""


def test_nothing_is_not_shown() -> None:
    found = shown(make_pod("p", cpu="0"))
    assert ("kube_pod_resource_request", "p", "cpu") not in found


def test_a_response_of_many_pieces_is_whole() -> None:
    found = shown(*(make_pod(f"p{number}") for number in range(450)))
    assert len(found) == 900


def test_who_does_not_lead_has_nothing_to_say() -> None:
    assert shown(make_pod("p"), leading=False) == {}
