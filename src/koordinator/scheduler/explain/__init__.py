"""Why pods are where they are, or nowhere, and why nodes take pods or do not: documents made when somebody asks.

The scheduler keeps little for each decision (see engine.decision); everything else is worked out from the present state
of the cluster by asking the plugins again, so that explanations cost nothing until they are wanted.
"""

from koordinator.scheduler.explain.node import explain_node
from koordinator.scheduler.explain.pod import explain_pod
from koordinator.scheduler.explain.sources import Sources

__all__ = ["Sources", "explain_node", "explain_pod"]
