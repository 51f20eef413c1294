"""Which plugins a request passes, and in which order."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from koordinator.cluster.admission.chain import ORDER, AdmissionChain, Plugin
from koordinator.cluster.admission.plugins import WITH_CONTROLLERS, admission_chain
from koordinator.cluster.server import ServerOptions
from koordinator.cluster.verbs.delete import delete
from koordinator.cluster.verbs.environment import Attributes, Environment, Operation, plugins_mutate
from koordinator.cluster.verbs.options import DeleteOptions, WriteOptions
from koordinator.cluster.verbs.target import Target
from tests.cluster.corpus import RESOURCES, context
from tests.cluster.embedded import Verbs, config_map, embedded_api

Document = dict[str, Any]


class _Noted(Plugin):
    """Notes in the object that it was asked."""

    def __init__(self, name: str, **concern: Any) -> None:
        self.__dict__.update(concern, name=name)

    async def mutate(self, attributes: Attributes) -> None:
        assert attributes.obj is not None
        attributes.obj.setdefault("asked", []).append(self.name)


def _asked(*plugins: Plugin, operation: Operation = "CREATE", kind: str = "Pod", subresource: str = "") -> list[str]:
    obj: Document = {"metadata": {"name": "a"}}
    target = Target(RESOURCES["v1", kind], "default", "a", subresource)
    attributes = Attributes(operation, target, obj, None, context(), WriteOptions())
    asyncio.run(plugins_mutate(AdmissionChain(*plugins), attributes))
    found: list[str] = obj.get("asked", [])
    return found


def test_plugins_run_in_the_order_of_the_real_server() -> None:
    assert _asked(_Noted("RuntimeClass"), _Noted("Priority"), _Noted("LimitRanger")) == [
        "LimitRanger",
        "Priority",
        "RuntimeClass",
    ]


def test_the_chain_of_a_server_keeps_that_order() -> None:
    names = admission_chain(*WITH_CONTROLLERS).names
    assert list(names) == [name for name in ORDER if name in names]


@pytest.mark.parametrize(
    ("concern", "request_of"),
    [
        ({"resources": (("", "nodes"),)}, {}),
        ({}, {"operation": "UPDATE"}),
        ({}, {"subresource": "status"}),
        ({"subresources": ("resize",)}, {}),
    ],
)
def test_a_plugin_is_not_asked_about_what_does_not_concern_it(concern: Document, request_of: Document) -> None:
    assert _asked(_Noted("Priority", **concern), **request_of) == []


def test_a_plugin_without_resources_is_asked_about_all() -> None:
    assert _asked(_Noted("NamespaceLifecycle", subresources=()), kind="Secret", subresource="x") == [
        "NamespaceLifecycle"
    ]


@pytest.mark.parametrize("controllers", [True, False])
def test_what_a_controller_takes_away_is_added_where_it_runs(controllers: bool) -> None:
    async def main() -> tuple[Document, Document]:
        async with embedded_api(ServerOptions(workload_controllers=controllers)) as client:
            node = await client.post("/api/v1/nodes", {"metadata": {"name": "n"}})
            spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
            path = "/api/v1/namespaces/default/persistentvolumeclaims"
            return node, await client.post(path, {"metadata": {"name": "c"}, "spec": spec})

    node, claim = asyncio.run(main())
    taints = [(taint["key"], taint["effect"]) for taint in node["spec"].get("taints", [])]
    assert taints == ([("node.kubernetes.io/not-ready", "NoSchedule")] if controllers else [])
    assert claim["metadata"].get("finalizers", []) == (["kubernetes.io/pvc-protection"] if controllers else [])


class _Idle(_Noted):
    """Has something to do in namespaces with a ConfigMap."""

    idle_by = (("", "configmaps"),)

    def is_idle(self, operation: Operation, namespace: str | None, objects: Environment) -> bool:
        return not objects.list_objects("", "configmaps", namespace)


def test_a_plugin_is_called_where_it_is_not_idle_as_of_the_last_write() -> None:
    async def main() -> list[list[str]]:
        verbs = Verbs()
        chain = AdmissionChain(_Idle("LimitRanger"))
        chain.follow(verbs.environment)
        asked = [await _mutated(chain)]
        await verbs.create("configmaps", config_map("c"))
        asked += [await _mutated(chain), await _mutated(chain, "other")]
        await delete(verbs.environment, verbs.target("configmaps", "c"), DeleteOptions())
        return [*asked, await _mutated(chain)]

    assert asyncio.run(main()) == [[], ["LimitRanger"], [], []]


async def _mutated(chain: AdmissionChain, namespace: str = "default") -> list[str]:
    obj: Document = {"metadata": {"name": "a"}}
    target = Target(RESOURCES["v1", "Pod"], namespace, "a")
    await plugins_mutate(chain, Attributes("CREATE", target, obj, None, context(), WriteOptions()))
    found: list[str] = obj.get("asked", [])
    return found


def test_nothing_is_created_in_a_namespace_that_is_going_since_the_last_creation() -> None:
    async def main() -> tuple[int, str]:
        async with embedded_api() as client:
            await client.post("/api/v1/namespaces", {"metadata": {"name": "n"}})
            path = "/api/v1/namespaces/n/configmaps"
            await client.post(path, config_map("held", finalizers=["example.io/held"]))
            await client.request("DELETE", "/api/v1/namespaces/n")
            response = await client.request("POST", path, config_map("late"))
            return response.status, response.body["message"]

    status, message = asyncio.run(main())
    assert status == 403
    assert message.endswith("unable to create new content in namespace n because it is being terminated")
