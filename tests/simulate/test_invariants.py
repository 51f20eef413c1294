"""What holds at the end of any what-if, whatever the cluster and the changes are."""

from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.json import encode

from koordinator.simulate.change import Change
from koordinator.simulate.node_changes import AddNodes, Drain, RemoveNodes
from koordinator.simulate.object_changes import Apply, Delete
from tests.examples import examples
from tests.simulate.clusters import WEB_OWNER, Document, cluster, deployment, node, outcome_of, pod

_NAMES = [f"node-{number}" for number in range(4)]
_PODS = st.lists(st.tuples(st.integers(0, 4), st.integers(1, 3), st.booleans()), max_size=10)


def _changes() -> st.SearchStrategy[list[Any]]:
    names = st.sampled_from(_NAMES)
    one = st.one_of(
        st.builds(lambda name: Drain([name]), names),
        st.builds(lambda name: Drain([name], force=True), names),
        st.builds(lambda name, count: AddNodes(name, count), names, st.integers(1, 2)),
        st.builds(lambda count, cpu: Apply([deployment("new", count, str(cpu))]), st.integers(0, 6), st.integers(1, 5)),
        st.builds(lambda name: RemoveNodes([name]), st.just("node-3")),
        st.builds(lambda: Delete("pod", "pod-0")),
    )
    return st.lists(one, min_size=1, max_size=3, unique_by=lambda change: type(change).__name__)


def _documents(sizes: list[int], pods: list[tuple[int, int, bool]]) -> Document:
    free = dict(zip(_NAMES, sizes, strict=True))
    placed = []
    for index, (where, cpu, owned) in enumerate([(4, 1, False), *pods]):
        name = _NAMES[where] if where < 4 and free[_NAMES[where]] >= cpu else ""
        if name:
            free[name] -= cpu
        placed.append(pod(f"pod-{index}", name, str(cpu), WEB_OWNER if owned else None))
    nodes = [node(name, str(cpu)) for name, cpu in zip(_NAMES, sizes, strict=True)]
    return {"nodes": nodes, "pods": placed}


@given(st.lists(st.integers(2, 8), min_size=4, max_size=4), _PODS, _changes())
@settings(max_examples=examples(10), deadline=None)
def test_no_node_is_overbooked_and_no_pod_is_lost(
    sizes: list[int], pods: list[tuple[int, int, bool]], changes: list[Change]
) -> None:
    # What is deleted has to be there still, and a node that is gone cannot be drained or be a model afterwards.
    changes.sort(key=lambda change: (not isinstance(change, Delete), isinstance(change, RemoveNodes)))
    outcome = outcome_of(cluster(**_documents(sizes, pods)), *changes)
    assert outcome["settled"]
    for each in outcome["nodes"]:
        for amounts in each["resources"].values():
            assert (amounts["after"]["percent"] or 0) <= 100
    for each in outcome["departed"]:
        # Whoever leaves is made again, or it is said why not.
        assert ("replacement" in each) != ("notReplaced" in each) or each["cause"] in ("deleted", "scaled down")
    replaced = Counter(each["replacement"]["pod"] for each in outcome["departed"] if each.get("replacement"))
    assert max(replaced.values(), default=1) == 1
    placed = [each["pod"] for each in outcome["placed"]]
    assert len(placed) == len(set(placed))
    gone = {node for change in changes if isinstance(change, RemoveNodes) for node in change.nodes}
    drained = {node for change in changes if isinstance(change, Drain) for node in change.nodes}
    after_drain = outcome["placed"] if not any(isinstance(change, Apply | Delete) for change in changes) else []
    assert not {each["node"] for each in after_drain} & drained
    assert not {each["node"] for each in outcome["placed"]} & gone
    assert encode(outcome_of(cluster(**_documents(sizes, pods)), *changes)) == encode(outcome)
