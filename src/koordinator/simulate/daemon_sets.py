"""Makes the pods of DaemonSets: one for each eligible node, which the scheduler then places there or not."""

from __future__ import annotations

from koordinator.api.codec import convert
from koordinator.api.document import Document
from koordinator.api.kinds import NODES, PODS
from koordinator.cluster.controllers.daemon_set.new_pod import confine, fitness_of
from koordinator.cluster.controllers.daemon_set.types import DaemonSet
from koordinator.cluster.verbs.create import create
from koordinator.cluster.verbs.target import Target
from koordinator.simulate.simulated_cluster import SimulatedCluster
from koordinator.simulate.workloads import pod_of_template


async def make_daemons(cluster: SimulatedCluster, daemon_set: Document) -> int:
    """Make its pods, on the nodes that the controller would choose; returns how many. Raises ApiError."""
    api, made = cluster.api, 0
    judge = fitness_of(convert(daemon_set, DaemonSet))
    for node in sorted((await cluster.client.list(NODES)).items, key=lambda node: node.metadata.name):
        if not judge(node).should_run:
            continue
        pod = pod_of_template(daemon_set)
        confine(pod["spec"], node.metadata.name)
        await create(api.environment, Target(api.resource(PODS), daemon_set["metadata"]["namespace"]), pod)
        made += 1
    return made
