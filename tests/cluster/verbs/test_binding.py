from __future__ import annotations

import asyncio
from typing import Any

import pytest

from koordinator.api.document import Document
from koordinator.cluster.errors import ApiError
from koordinator.cluster.verbs.options import WriteOptions
from koordinator.cluster.verbs.subresources import bind
from tests.cluster.embedded import Verbs, pod


def _bind(verbs: Verbs, node: str = "n", **metadata: Any) -> Document:
    binding = {"metadata": {"name": "p", **metadata}, "target": {"kind": "Node", "name": node}}
    asyncio.run(bind(verbs.environment, verbs.target("pods", "p", subresource="binding"), binding, WriteOptions()))
    bound = verbs.get("pods", "p")
    assert bound is not None
    return bound


def _with_pod(**spec: Any) -> Verbs:
    verbs = Verbs()
    asyncio.run(verbs.create("pods", pod("p", **spec)))
    return verbs


def test_the_pod_gets_its_node_and_condition() -> None:
    bound = _bind(_with_pod())
    (condition,) = [c for c in bound["status"]["conditions"] if c["type"] == "PodScheduled"]
    assert (bound["spec"]["nodeName"], condition["status"]) == ("n", "True")


def test_annotations_of_the_binding_are_merged() -> None:
    assert _bind(_with_pod(), annotations={"a": "b"})["metadata"]["annotations"]["a"] == "b"


def test_a_bound_pod_stays_where_it_is() -> None:
    verbs = _with_pod()
    _bind(verbs)
    with pytest.raises(ApiError) as refused:
        _bind(verbs, "other")
    message = 'Operation cannot be fulfilled on pods/binding "p": pod p is already assigned to node "n"'
    assert (refused.value.code, refused.value.message) == (409, message)


def test_of_concurrent_bindings_one_wins() -> None:
    verbs = _with_pod()
    target = verbs.target("pods", "p", subresource="binding")

    async def main() -> list[object]:
        bindings = [{"metadata": {"name": "p"}, "target": {"name": f"n{number}"}} for number in range(5)]
        attempts = (bind(verbs.environment, target, binding, WriteOptions()) for binding in bindings)
        return await asyncio.gather(*attempts, return_exceptions=True)

    assert sum(isinstance(result, ApiError) for result in asyncio.run(main())) == 4


def test_another_uid_is_a_conflict() -> None:
    with pytest.raises(ApiError, match="Precondition failed"):
        _bind(_with_pod(), uid="other")


def test_a_gated_pod_is_not_bound() -> None:
    with pytest.raises(ApiError, match="non-empty"):
        _bind(_with_pod(schedulingGates=[{"name": "x.io/wait"}]))


def test_a_binding_needs_a_node() -> None:
    with pytest.raises(ApiError, match="Required value"):
        _bind(_with_pod(), "")
