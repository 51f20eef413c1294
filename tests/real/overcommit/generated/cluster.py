"""A cluster by chance: nodes, and the ConfigMaps that it goes through."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from tests.real.overcommit.generated.configurations import configuration
from tests.real.overcommit.generated.nodes import node
from tests.real.overcommit.node_case import NodeCase
from tests.real.overcommit.steps import Step


@dataclass(frozen=True, slots=True)
class GeneratedCluster:
    seed: int
    nodes: Sequence[NodeCase]
    steps: Sequence[Step]


def generated_cluster(seed: int, nodes: int, steps: int) -> GeneratedCluster:
    """Each node and each step has a source of chance of its own, so that one can be looked at without the others."""
    return GeneratedCluster(
        seed,
        [node(Random(f"{seed}-node-{number}"), f"g{seed}-{number}") for number in range(nodes)],
        [
            Step(f"step-{number}", configuration(Random(f"{seed}-step-{number}"), is_first=number == 0))
            for number in range(steps)
        ],
    )
