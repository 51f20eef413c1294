"""Free capacity of a node: what all pods above class free leave of it. The original has no such resource.

Batch capacity by usage, minus what batch pods and host applications of their class use; a batch pod without a metric
counts with what it requests. All that is subtracted from the limit, too. So free capacity has batch's safety margin, is
never more than batch capacity by usage, and batch and free pods together get no more than the limit. What free pods use
is not subtracted: the capacity is for all of them together.
"""

from __future__ import annotations

from typing import Final

from koordinator.api.colocation_strategy import CALCULATE_BY_USAGE
from koordinator.api.resource_names import FREE_CPU, FREE_MEMORY
from koordinator.model.overcommit import amounts
from koordinator.model.overcommit.amounts import Amounts, ExplainedAmount, Term, explained, total
from koordinator.model.overcommit.batch import BatchInputs, batch_terms
from koordinator.model.overcommit.facts import MetricFacts, NodePods

FREE_RESOURCES: Final = (FREE_CPU, FREE_MEMORY)


def free_amounts(inputs: BatchInputs, pods: NodePods, metric: MetricFacts) -> tuple[ExplainedAmount, ExplainedAmount]:
    """Free CPU and free memory of a node. ``inputs``: those of its batch capacity."""
    used, unmeasured = _used_by_batch(pods, metric), _requested_by_new_batch(pods, metric)
    return _amount(0, inputs, used, unmeasured, metric), _amount(1, inputs, used, unmeasured, metric)


def _amount(
    index: int, inputs: BatchInputs, used: Amounts, unmeasured: Amounts, metric: MetricFacts
) -> ExplainedAmount:
    """One resource: CPU has index 0, memory 1."""
    hosts = metric.hosts_above_free
    terms, details = batch_terms(inputs._replace(hosts=hosts), CALCULATE_BY_USAGE, index)
    terms = (
        *terms,
        Term(amounts.BATCH_POD_USAGE, -used[index]),
        Term(amounts.BATCH_PODS_WITHOUT_METRIC, -unmeasured[index]),
    )
    cap = (inputs.cpu_cap, inputs.memory_cap)[index]
    if cap is not None:
        cap = max(cap - used[index] - unmeasured[index] - (hosts[index] - metric.hosts_above_batch[index]), 0)
    return explained(FREE_RESOURCES[index], CALCULATE_BY_USAGE, metric.update_time, terms, cap, details)


def _used_by_batch(pods: NodePods, metric: MetricFacts) -> Amounts:
    """What neither free pods nor those above batch use: of batch pods, listed or not. The report says of what class a
    pod is that is not listed."""
    others = {pod.key for pod in pods.pods if pod.is_free}
    others.update(pods.high_keys, {*metric.high_pods, *metric.free_pods} - pods.listed)
    return total(usage for key, usage in metric.pods.items() if key not in others)


def _requested_by_new_batch(pods: NodePods, metric: MetricFacts) -> Amounts:
    batch = [pod for pod in pods.pods if pod.is_counted and not (pod.is_high or pod.is_free)]
    return total(pod.requests for pod in batch if pod.key not in metric.pods)
