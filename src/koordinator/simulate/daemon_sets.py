"""Makes the pods of DaemonSets: one for each eligible node, which the scheduler then places there or not."""

from __future__ import annotations

from koordinator.api.document import Document
from koordinator.api.kinds import NODES, PODS
from koordinator.cluster.controllers.daemon_set.new_pod import fitness_of, new_pod
from koordinator.cluster.controllers.daemon_set.types import DAEMON_SETS
from koordinator.cluster.controllers.deployment.template_hash import template_hash
from koordinator.cluster.verbs.create import create
from koordinator.cluster.verbs.target import Target
from koordinator.simulate.simulated_cluster import SimulatedCluster
from koordinator.simulate.workloads import Workloads


async def make_daemons(cluster: SimulatedCluster, daemon_set: Document) -> int:
    """Make its pods, on the nodes that the controller would choose; returns how many. Raises ApiError."""
    api, made = cluster.api, 0
    owner = Workloads(cluster).typed(DAEMON_SETS, daemon_set)
    judge, digest = fitness_of(owner), template_hash(owner.spec.template, None)
    target = Target(api.resource(PODS), owner.metadata.namespace)
    for node in sorted((await cluster.client.list(NODES)).items, key=lambda node: node.metadata.name):
        if judge(node).should_run:
            await create(api.environment, target, new_pod(owner, node.metadata.name, digest))
            made += 1
    return made
