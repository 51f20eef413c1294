"""Random rules of where pods may go: taints and tolerations, node affinities, host ports."""

from __future__ import annotations

from hypothesis import strategies as st

from koordinator.api.node import Taint
from koordinator.api.pod import (
    ContainerPort,
    NodeAffinity,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    PreferredSchedulingTerm,
    Toleration,
)

effects = st.sampled_from(["NoSchedule", "NoExecute", "PreferNoSchedule"])
taints = st.builds(Taint, key=st.sampled_from(["x", "y"]), value=st.sampled_from(["", "1"]), effect=effects)
tolerations = st.builds(
    Toleration,
    key=st.sampled_from(["", "x", "y", "node.kubernetes.io/unschedulable"]),
    operator=st.sampled_from(["", "Equal", "Exists"]),
    value=st.sampled_from(["", "1"]),
    effect=st.sampled_from(["", "NoSchedule", "PreferNoSchedule"]),
)
requirements = st.one_of(
    st.builds(
        NodeSelectorRequirement,
        key=st.sampled_from(["zone", "size"]),
        operator=st.sampled_from(["In", "NotIn"]),
        values=st.lists(st.sampled_from(["a", "b", "1"]), min_size=1, max_size=2),
    ),
    st.builds(
        NodeSelectorRequirement,
        key=st.sampled_from(["zone", "size"]),
        operator=st.sampled_from(["Exists", "DoesNotExist"]),
    ),
    st.builds(
        NodeSelectorRequirement, key=st.just("size"), operator=st.sampled_from(["Gt", "Lt"]), values=st.just(["1"])
    ),
)
by_name = st.builds(
    NodeSelectorRequirement,
    key=st.just("metadata.name"),
    operator=st.sampled_from(["In", "In", "NotIn"]),
    values=st.sampled_from(["n0", "n1", "gone"]).map(lambda name: [name]),
)
terms = st.builds(
    NodeSelectorTerm,
    match_expressions=st.lists(requirements, max_size=2),
    match_fields=st.just([]) | st.lists(by_name, max_size=2),
)
node_affinities = st.builds(
    NodeAffinity,
    required_during_scheduling_ignored_during_execution=st.none()
    | st.builds(NodeSelector, node_selector_terms=st.lists(terms, min_size=1, max_size=2)),
    preferred_during_scheduling_ignored_during_execution=st.lists(
        st.builds(PreferredSchedulingTerm, weight=st.integers(1, 100), preference=terms), max_size=2
    ),
)
ports = st.builds(
    ContainerPort,
    container_port=st.just(80),
    host_port=st.sampled_from([0, 80, 81]),
    host_ip=st.sampled_from(["", "10.0.0.1", "10.0.0.2"]),
    protocol=st.sampled_from(["TCP", "UDP"]),
)
