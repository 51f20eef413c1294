"""What a CustomResourceDefinition says of itself while it waits for its objects to go."""

from __future__ import annotations

import asyncio
from random import Random

from koordinator.api.document import Document
from koordinator.cluster.background import BackgroundLoops
from koordinator.cluster.custom_resources import CustomResources
from koordinator.cluster.termination import Termination
from koordinator.cluster.verbs.delete import delete
from koordinator.cluster.verbs.options import DeleteOptions
from koordinator.cluster.verbs.target import decode
from koordinator.cluster.verbs.update import patch
from tests.cluster.embedded import Verbs

GROUP = "apiextensions.k8s.io"
NAME = "things.example.io"
MERGE = "application/merge-patch+json"
DEFINITION: Document = {
    "metadata": {"name": NAME, "finalizers": ["example.io/own"]},
    "spec": {
        "group": "example.io",
        "scope": "Namespaced",
        "names": {"plural": "things", "singular": "thing", "kind": "Thing"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
            }
        ],
    },
}
HELD: Document = {"metadata": {"name": "a", "finalizers": ["example.io/held"]}}


def terminating(definition: Document) -> tuple[str, str, str]:
    conditions = {each["type"]: each for each in definition["status"]["conditions"]}
    found = conditions["Terminating"]
    return found["status"], found["reason"], found["message"]


def test_it_says_what_it_waits_for_and_when_all_is_gone() -> None:
    async def main() -> None:
        verbs = Verbs()
        await verbs.create("customresourcedefinitions", DEFINITION, group=GROUP)
        CustomResources(verbs.environment).load()
        await verbs.create("things", HELD, group="example.io")
        target = verbs.target("customresourcedefinitions", NAME, group=GROUP)
        marked = await delete(verbs.environment, target, DeleteOptions())
        definition = decode(target.resource, marked.stored)
        # No other kind is marked so.
        assert "deletionGracePeriodSeconds" not in definition["metadata"]
        assert definition["metadata"]["generation"] == 1
        assert terminating(definition) == (
            "True",
            "InstanceDeletionPending",
            "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon",
        )
        loops = BackgroundLoops(verbs.clock, Random(1))
        loops.add("termination", Termination(verbs.environment).loops()["custom-resource-definition-termination"])
        running = asyncio.ensure_future(loops.run())
        await verbs.clock.advance(2)
        waiting = verbs.get("customresourcedefinitions", NAME, group=GROUP)
        assert waiting is not None
        in_progress = "True", "InstanceDeletionInProgress", "CustomResource deletion is in progress"
        assert terminating(waiting) == in_progress
        thing = verbs.target("things", "a", group="example.io")
        await patch(verbs.environment, thing, MERGE, b'{"metadata":{"finalizers":null}}')
        await verbs.clock.advance(2)
        kept = verbs.get("customresourcedefinitions", NAME, group=GROUP)
        assert kept is not None
        assert terminating(kept) == ("False", "InstanceDeletionCompleted", "removed all instances")
        assert kept["metadata"]["finalizers"] == ["example.io/own"]
        running.cancel()
        await asyncio.wait((running,))

    asyncio.run(main())
