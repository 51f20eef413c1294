"""What goes with a namespace, in which order, and what its conditions say meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from random import Random

from koordinator.api.document import Document
from koordinator.cluster.background import BackgroundLoops
from koordinator.cluster.errors import ApiError
from koordinator.cluster.termination import Termination
from koordinator.cluster.verbs.create import create
from koordinator.cluster.verbs.delete import delete
from koordinator.cluster.verbs.environment import Attributes, NoWebhooks, Webhooks
from koordinator.cluster.verbs.options import DeleteOptions
from koordinator.cluster.verbs.target import Target
from koordinator.cluster.verbs.update import patch
from tests.cluster.embedded import Verbs, config_map, pod

MERGE = "application/merge-patch+json"
FINE = {
    "NamespaceDeletionDiscoveryFailure": ("False", "ResourcesDiscovered", "All resources successfully discovered"),
    "NamespaceDeletionGroupVersionParsingFailure": (
        "False",
        "ParsedGroupVersions",
        "All legacy kube types successfully parsed",
    ),
    "NamespaceDeletionContentFailure": (
        "False",
        "ContentDeleted",
        "All content successfully deleted, may be waiting on finalization",
    ),
    "NamespaceContentRemaining": ("False", "ContentRemoved", "All content successfully removed"),
    "NamespaceFinalizersRemaining": (
        "False",
        "ContentHasNoFinalizers",
        "All content-preserving finalizers finished",
    ),
}


class _Deletion:
    """Of the namespace ``n``, beside the loops of the server."""

    def __init__(self, webhooks: Webhooks) -> None:
        self.verbs = Verbs()
        self.verbs.environment = replace(self.verbs.environment, webhooks=webhooks)

    def target(self, plural: str, name: str = "") -> Target:
        resource = self.verbs.environment.registry.stored["", plural]
        assert resource is not None
        return Target(resource, "n" if resource.namespaced else None, name)

    def found(self, plural: str, name: str) -> Document | None:
        return self.verbs.environment.lookup("", plural, "n" if plural != "namespaces" else None, name)

    def conditions(self) -> dict[str, tuple[str, ...]]:
        namespace = self.found("namespaces", "n")
        assert namespace is not None
        conditions = namespace["status"]["conditions"]
        return {each["type"]: (each["status"], each["reason"], each["message"]) for each in conditions}

    async def let_go(self, plural: str, name: str) -> None:
        await patch(self.verbs.environment, self.target(plural, name), MERGE, b'{"metadata":{"finalizers":null}}')
        await self.verbs.clock.advance(2)

    async def begin(self, **objects: Document) -> None:
        """``objects`` are by their plurals."""
        environment = self.verbs.environment
        await create(environment, self.target("namespaces", "n"), {"metadata": {"name": "n"}})
        for plural, obj in objects.items():
            await create(environment, self.target(plural), obj)
        await delete(environment, self.target("namespaces", "n"), DeleteOptions())
        await self.verbs.clock.advance(2)


def _play(script: Callable[[_Deletion], Awaitable[None]], webhooks: Webhooks | None = None) -> None:
    async def main() -> None:
        deletion = _Deletion(webhooks or NoWebhooks())
        loops = BackgroundLoops(deletion.verbs.clock, Random(1))
        for name, body in Termination(deletion.verbs.environment).loops().items():
            loops.add(name, body)
        running = asyncio.ensure_future(loops.run())
        try:
            await script(deletion)
            assert not running.done()
        finally:
            running.cancel()
            await asyncio.wait((running,))

    asyncio.run(main())


def _held(obj: Document) -> Document:
    return {**obj, "metadata": {**obj["metadata"], "finalizers": ["example.io/held"]}}


def test_pods_go_before_what_they_use() -> None:
    async def script(deletion: _Deletion) -> None:
        await deletion.begin(pods=_held(pod("p")), configmaps=config_map("c"))
        assert deletion.conditions() == FINE
        going = [(deletion.found(*each) or {})["metadata"] for each in (("pods", "p"), ("configmaps", "c"))]
        assert ["deletionTimestamp" in metadata for metadata in going] == [True, False]
        await deletion.let_go("pods", "p")
        assert deletion.found("namespaces", "n") is None

    _play(script)


def test_its_conditions_say_what_holds_it() -> None:
    async def script(deletion: _Deletion) -> None:
        await deletion.begin(configmaps=_held(config_map("c")), secrets=_held({"metadata": {"name": "s"}}))
        assert deletion.conditions() == FINE | {
            "NamespaceContentRemaining": (
                "True",
                "SomeResourcesRemain",
                "Some resources are remaining: configmaps. has 1 resource instances, secrets. has 1 resource instances",
            ),
            "NamespaceFinalizersRemaining": (
                "True",
                "SomeFinalizersRemain",
                "Some content in the namespace has finalizers remaining: example.io/held in 2 resource instances",
            ),
        }
        revision = deletion.verbs.storage.revision()
        await deletion.verbs.clock.advance(10)
        # What is still so is not written again.
        assert deletion.verbs.storage.revision() == revision
        for plural, name in (("configmaps", "c"), ("secrets", "s")):
            await deletion.let_go(plural, name)
        assert deletion.found("namespaces", "n") is None

    _play(script)


def test_a_pod_that_does_not_end_in_its_time_is_a_failure() -> None:
    async def script(deletion: _Deletion) -> None:
        bound = pod("p", nodeName="gone", terminationGracePeriodSeconds=20)
        await deletion.begin(pods=bound)
        assert deletion.conditions() == FINE
        await deletion.verbs.clock.advance(20)
        text = "unexpected items still remain in namespace: n for gvr: /v1, Resource=pods"
        failed = ("True", "ContentDeletionFailed", f"Failed to delete all resource types, 1 remaining: {text}")
        assert deletion.conditions() == FINE | {"NamespaceDeletionContentFailure": failed}

    _play(script)


class _Keeps(NoWebhooks):
    in_force = ("validatingwebhookconfigurations",)

    def __init__(self, plural: str) -> None:
        self._plural = plural

    async def validate(self, attributes: Attributes) -> None:
        if attributes.operation == "DELETE" and attributes.target.resource.plural == self._plural:
            raise ApiError(403, "Forbidden", "admission webhook denied the request")


def test_what_may_not_be_deleted_holds_up_nothing_else() -> None:
    async def script(deletion: _Deletion) -> None:
        await deletion.begin(secrets={"metadata": {"name": "s"}}, configmaps=config_map("c"))
        assert deletion.found("configmaps", "c") is None
        text = "Failed to delete all resource types, 1 remaining: admission webhook denied the request"
        failed = ("True", "ContentDeletionFailed", text)
        assert deletion.conditions() == FINE | {"NamespaceDeletionContentFailure": failed}

    _play(script, _Keeps("secrets"))


def test_what_pods_use_stays_while_pods_may_not_be_deleted() -> None:
    async def script(deletion: _Deletion) -> None:
        await deletion.begin(pods=pod("p"), configmaps=config_map("c"))
        assert deletion.found("configmaps", "c") is not None

    _play(script, _Keeps("pods"))
