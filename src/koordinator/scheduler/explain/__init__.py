"""Explains why pods are on their nodes, or pending, and why nodes accept pods or not: documents made on request.

The scheduler keeps little for each decision (see engine.decision); everything else is computed from the present state
of the cluster by running the plugins again, so that explanations cost nothing until they are requested.
"""

from koordinator.scheduler.explain.node import explain_node
from koordinator.scheduler.explain.pod import explain_pod
from koordinator.scheduler.explain.sources import Sources

__all__ = ["Sources", "explain_node", "explain_pod"]
