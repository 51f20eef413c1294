"""What the end-to-end tests of the official Python client do, without nodes: ``python official.py KUBECONFIG``.

It runs in an environment that has the package ``kubernetes`` and prints a line for each step.
"""

from __future__ import annotations

import sys
import uuid
from typing import Any

from kubernetes import client, config, dynamic, utils, watch  # type: ignore[import-not-found]
from kubernetes.client.rest import ApiException  # type: ignore[import-not-found]

_LABELS = {"app": "web"}
_TEMPLATE: dict[str, Any] = {
    "metadata": {"labels": _LABELS},
    "spec": {"containers": [{"name": "main", "image": "web:1"}]},
}
_SELECTOR = {"matchLabels": _LABELS}
_FOO = {"apiVersion": "example.com/v1", "kind": "Foo"}


def core(name: str) -> None:
    """Objects of the core group by their typed calls."""
    api = client.CoreV1Api()
    api.create_namespaced_config_map("default", {"metadata": {"name": name}, "data": {"a": "b"}})
    assert api.read_namespaced_config_map(name, "default").data == {"a": "b"}
    patched = api.patch_namespaced_config_map(name, "default", {"data": {"c": "d"}})
    assert patched.data == {"a": "b", "c": "d"}
    assert name in [each.metadata.name for each in api.list_namespaced_config_map("default").items]
    api.delete_namespaced_config_map(name, "default")
    service = {"metadata": {"name": name}, "spec": {"ports": [{"name": "old", "port": 80}], "selector": _LABELS}}
    assert api.create_namespaced_service("default", service).spec.cluster_ip
    api.patch_namespaced_service(name, "default", {"spec": {"ports": [{"name": "new", "port": 8080}]}})
    assert [port.port for port in api.read_namespaced_service(name, "default").spec.ports] == [8080, 80]
    api.delete_namespaced_service(name, "default")
    assert api.list_node().items == []


def workloads(name: str) -> None:
    """A Deployment from a dictionary, a Job and its pods' watch."""
    spec = {"replicas": 0, "selector": _SELECTOR, "template": _TEMPLATE}
    deployment = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": spec}
    utils.create_from_dict(client.ApiClient(), deployment)
    apps = client.AppsV1Api()
    apps.patch_namespaced_deployment_scale(name, "default", {"spec": {"replicas": 1}})
    assert apps.read_namespaced_deployment(name, "default").spec.replicas == 1
    apps.delete_namespaced_deployment(name, "default", propagation_policy="Background")
    template = {**_TEMPLATE, "spec": {**_TEMPLATE["spec"], "restartPolicy": "Never"}}
    batch = client.BatchV1Api()
    batch.create_namespaced_job("default", {"metadata": {"name": name}, "spec": {"template": template}})
    batch.delete_namespaced_job(name, "default", propagation_policy="Background")


def watching(name: str) -> None:
    api = client.CoreV1Api()
    start = api.list_namespaced_config_map("default").metadata.resource_version
    for suffix in "ab":
        api.create_namespaced_config_map("default", {"metadata": {"name": f"{name}-{suffix}", "labels": {"of": name}}})
        api.delete_namespaced_config_map(f"{name}-{suffix}", "default")
    stream = watch.Watch().stream(
        api.list_namespaced_config_map,
        "default",
        label_selector=f"of={name}",
        resource_version=start,
        timeout_seconds=2,
    )
    types = [event["type"] for event in stream]
    assert types == ["ADDED", "DELETED"] * 2, types


def refusals(name: str) -> None:
    api = client.CoreV1Api()
    try:
        api.read_namespaced_pod(name, "default")
    except ApiException as error:
        if error.status == 404:
            return
        raise
    raise AssertionError("a pod that is not there was read")


def dynamically(name: str) -> None:
    """A kind that is defined, found by discovery, and applied."""
    api = dynamic.DynamicClient(client.ApiClient())
    definitions = api.resources.get(api_version="apiextensions.k8s.io/v1", kind="CustomResourceDefinition")
    definitions.create(body=_definition(), field_manager="e2e")
    try:
        foos = _found(api)
        applied = foos.server_side_apply(
            namespace="default", name=name, body={**_FOO, "metadata": {"name": name}, "spec": {"a": 1}},
            field_manager="e2e", force_conflicts=True,
        )  # fmt: skip
        assert applied.metadata.managedFields[0].manager == "e2e"
        foos.patch(namespace="default", name=name, body={"spec": {"a": 2}}, content_type="application/merge-patch+json")
        assert foos.get(namespace="default", name=name).spec.a == 2
        foos.delete(namespace="default", name=name)
    finally:
        definitions.delete(name="foos.example.com")


def _definition() -> dict[str, Any]:
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    names = {"plural": "foos", "kind": "Foo"}
    spec = {"group": "example.com", "scope": "Namespaced", "names": names, "versions": [version]}
    metadata = {"name": "foos.example.com"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": metadata,
        "spec": spec,
    }


def _found(api: Any) -> Any:
    """The real server serves a kind a moment after its definition."""
    stream = api.resources.get(api_version="apiextensions.k8s.io/v1", kind="CustomResourceDefinition").watch(
        name="foos.example.com", timeout=20
    )
    for event in stream:
        conditions = {each.type: each.status for each in (event["object"].status or {}).get("conditions") or []}
        if conditions.get("Established") == "True":
            break
    api.resources.invalidate_cache()
    return api.resources.get(api_version="example.com/v1", kind="Foo")


if __name__ == "__main__":
    config.load_kube_config(sys.argv[1])
    for step in (core, workloads, watching, refusals, dynamically):
        step(f"e2e-{uuid.uuid4().hex[:8]}")
        sys.stdout.write(f"{step.__name__}\n")
