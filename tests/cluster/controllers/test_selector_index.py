"""The index of objects by what they select."""

from __future__ import annotations

from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from koordinator.api.meta import LabelSelector, LabelSelectorRequirement, ObjectMeta
from koordinator.cluster.controllers.ownership import usable_selector
from koordinator.cluster.controllers.selector_index import SelectorIndex
from koordinator.cluster.controllers.workloads import REPLICA_SETS, ReplicaSet, ReplicaSetSpec
from koordinator.kube.informer import Informer
from tests.in_memory_api import InMemoryApi

_LABELS = st.dictionaries(st.sampled_from("abc"), st.sampled_from("xy"))
_EXPRESSION = st.builds(
    lambda key, operator: LabelSelectorRequirement(key=key, operator=operator, values=["x"] if "n" in operator else []),
    st.sampled_from("abc"),
    st.sampled_from(["In", "NotIn", "Exists", "Like"]),
)
_SELECTOR = st.none() | st.builds(
    lambda labels, expressions: LabelSelector(match_labels=labels, match_expressions=expressions),
    _LABELS,
    st.lists(_EXPRESSION, max_size=1),
)


@given(st.lists(st.tuples(st.sampled_from(["one", "two"]), _SELECTOR), max_size=8), _LABELS)
def test_it_finds_exactly_what_selects_the_labels(
    owners: list[tuple[str, LabelSelector | None]], labels: Mapping[str, str]
) -> None:
    informer: Informer[ReplicaSet] = Informer(InMemoryApi().client(), REPLICA_SETS)
    index = SelectorIndex("selected", informer, lambda each: usable_selector(each.spec.selector))
    for number, (namespace, selector) in enumerate(owners):
        owner = ReplicaSet(
            metadata=ObjectMeta(name=str(number), namespace=namespace), spec=ReplicaSetSpec(selector=selector)
        )
        informer.store.put(owner.metadata.key, owner)
    found = index.selecting(ObjectMeta(name="pod", namespace="one", labels=dict(labels)))
    expected = [
        each
        for each in informer.list()
        if each.metadata.namespace == "one" and usable_selector(each.spec.selector).matches(labels)
    ]
    assert sorted(each.metadata.name for each in found) == sorted(each.metadata.name for each in expected)
