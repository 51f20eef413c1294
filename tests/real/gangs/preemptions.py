"""Stories of job preemption that both schedulers are put through. Nodes have as many slots as named; pods of the gang
``s`` and others that run have been there before."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

from koordinator.api.kinds import ELASTIC_QUOTAS, GENERIC_WORKLOADS, POD_DISRUPTION_BUDGETS, PODS, RESERVATIONS
from koordinator.api.labels import DISABLE_PREEMPTIBLE, QUOTA_PREEMPTIBLE
from tests.real.gangs.preemption_stage import NEVER, PreemptionStage
from tests.real.gangs.stage import POD_GROUP, names
from tests.real.quota_runs import PREFIX, quota

Scenario = Callable[[PreemptionStage], Awaitable[None]]


async def gang_preempts_single_pods(stage: PreemptionStage) -> None:
    await stage.nodes(3)
    await stage.running("s", 3)
    await stage.known()
    await stage.gang("g", 3)


async def only_those_leave_that_have_to(stage: PreemptionStage) -> None:
    await stage.nodes(5)
    await stage.running("s", 5)
    await stage.known()
    await stage.gang("g", 2)


async def single_pod_preempts(stage: PreemptionStage) -> None:
    await stage.nodes(1)
    await stage.running("s", 1)
    await stage.known()
    await stage.important("p", 0, by="nothing")


async def gang_preempts_a_gang(stage: PreemptionStage) -> None:
    await stage.nodes(3)
    await stage.group("low", 2)
    for number in range(2):
        await stage.important("low", number, 0)
    await stage.bound("low", 2)
    await stage.running("s", 1, priority=20)
    await stage.known()
    await stage.gang("g", 2)


async def victims_of_one_job_cost_once(stage: PreemptionStage) -> None:
    """Two jobs would lose a member on the first node, and one on the second."""
    await stage.nodes(2, 2, 2)
    await stage.running("a", 1, 0, 5, job="x")
    await stage.running("b", 1, 0, 5, job="y")
    await stage.running("c", 2, 1, 5, job="z")
    await stage.running("s", 1, 2)
    await stage.running("vip", 1, 2, 20)
    await stage.known()
    await stage.gang("g", 1, cpu="2")


async def least_important_victims(stage: PreemptionStage) -> None:
    await stage.nodes(2, 2)
    await stage.running("a", 2, 0, 5)
    await stage.running("b", 2, 1, 0)
    await stage.known()
    await stage.gang("g", 2)


async def first_node_of_equals(stage: PreemptionStage) -> None:
    await stage.nodes(1, 1, 1)
    for node in range(3):
        await stage.running("s", 1, node, first=node)
    await stage.known()
    await stage.gang("g", 1)


async def more_important_ones_stay(stage: PreemptionStage) -> None:
    await stage.nodes(3)
    await stage.running("s", 1, priority=5)
    await stage.running("t", 2)
    await stage.known()
    await stage.gang("g", 2)


async def jobs_stay_in_the_order_of_their_names(stage: PreemptionStage) -> None:
    await stage.nodes(3)
    await stage.running("a", 1, job="y")
    await stage.running("b", 1, job="x")
    await stage.running("c", 1)
    await stage.known()
    await stage.gang("g", 2)


async def equals_stay(stage: PreemptionStage) -> None:
    await stage.nodes(1)
    await stage.running("s", 1, priority=10)
    await stage.known()
    await stage.gang("g", 1)


async def gang_that_never_preempts(stage: PreemptionStage) -> None:
    await stage.nodes(2)
    await stage.running("s", 2)
    await stage.known()
    await stage.gang("g", 2, NEVER)


async def protected_by_label(stage: PreemptionStage) -> None:
    await stage.nodes(2)
    await stage.running("s", 1, other_labels={DISABLE_PREEMPTIBLE: "true"})
    await stage.running("t", 1, other_labels={QUOTA_PREEMPTIBLE: "false"})
    await stage.known()
    await stage.gang("g", 1)


async def one_is_protected_by_label(stage: PreemptionStage) -> None:
    await stage.nodes(2)
    await stage.running("s", 1, other_labels={DISABLE_PREEMPTIBLE: "true"})
    await stage.running("t", 1, other_labels={DISABLE_PREEMPTIBLE: "false"})
    await stage.known()
    await stage.gang("g", 1)


async def budget_protects_nobody(stage: PreemptionStage) -> None:
    await stage.nodes(2)
    await stage.running("s", 2, other_labels={"app": "web"})
    spec = {"minAvailable": 2, "selector": {"matchLabels": {"app": "web"}}}
    await stage.create(POD_DISRUPTION_BUDGETS, {"metadata": {"name": "budget"}, "spec": spec})
    await stage.known()
    await stage.gang("g", 2)


async def member_is_larger_than_any_node(stage: PreemptionStage) -> None:
    await stage.nodes(2)
    await stage.running("s", 2)
    await stage.known()
    await stage.group("g", 2)
    await stage.important("g", 0)
    await stage.important("g", 1, cpu="5")


async def members_of_two_sizes_preempt(stage: PreemptionStage) -> None:
    await stage.nodes(4)
    await stage.running("s", 4)
    await stage.known()
    await stage.group("g", 2)
    await stage.important("g", 0)
    await stage.important("g", 1, cpu="2")


async def gang_is_incomplete(stage: PreemptionStage) -> None:
    await stage.nodes(2)
    await stage.running("s", 2)
    await stage.known()
    await stage.group("g", 2)
    await stage.important("g", 0)


async def nobody_gets_a_free_node_by_preemption(stage: PreemptionStage) -> None:
    await stage.nodes(2, 2)
    await stage.running("s", 2)
    await stage.known()
    await stage.gang("g", 2)


async def group_of_gangs_preempts(stage: PreemptionStage) -> None:
    await stage.nodes(2)
    await stage.running("s", 2)
    await stage.known()
    together: dict[str, Any] = {"groups": names(["a", "b"])}
    await stage.group("a", 1, **together)
    await stage.group("b", 1, **together)
    await stage.important("a", 0)
    await stage.important("b", 0)


async def one_more_for_a_gang_that_runs_preempts(stage: PreemptionStage) -> None:
    await stage.nodes(3)
    await stage.running("s", 1)
    await stage.gang("g", 2)
    await stage.bound("g", 2)
    await stage.known()
    await stage.important("g", 2)


async def nominations_are_cleared(stage: PreemptionStage) -> None:
    """While the victims leave, the node is cordoned."""
    await stage.nodes(2)
    await stage.running("s", 2)
    await stage.known()
    await stage.gang("g", 2)
    moment = await stage.look()
    await stage.cordon(0)
    await stage.let_go(list(moment.leaving))


async def tried_again_while_victims_leave(stage: PreemptionStage) -> None:
    """A node appears that is large enough and has a taint."""
    await stage.nodes(2)
    await stage.running("s", 2)
    await stage.known()
    await stage.gang("g", 2)
    await stage.look()
    await stage.add_node(f"{stage.prefix}-tainted", 4, taints=[{"key": "example.com/no", "effect": "NoSchedule"}])


async def one_leaves_already(stage: PreemptionStage) -> None:
    """Of two pods that have to leave, one has been deleted by its owner."""
    await stage.nodes(2)
    await stage.running("s", 2)
    await stage.request_eviction("s-0")
    await stage.known()
    await stage.gang("g", 2)


async def less_important_nomination_is_cleared(stage: PreemptionStage) -> None:
    await stage.nodes(1)
    await stage.running("s", 1)
    await stage.known()
    await stage.important("low", 0, 5, by="nothing")
    await stage.look()
    await stage.gang("g", 1)


async def node_of_nobody_who_may_leave(stage: PreemptionStage) -> None:
    await stage.nodes(1, 1)
    await stage.running("vip", 1, 0, 20)
    await stage.running("s", 1, 1)
    await stage.known()
    await stage.gang("g", 1)


async def gang_fits_on_no_single_node(stage: PreemptionStage) -> None:
    await stage.nodes(1, 1)
    await stage.running("s", 1, 0)
    await stage.running("t", 1, 1)
    await stage.known()
    await stage.gang("g", 2)


async def one_member_has_a_node(stage: PreemptionStage) -> None:
    await stage.nodes(1, 1)
    await stage.running("s", 1, 0)
    await stage.known()
    await stage.gang("g", 2)


async def non_strict_gang_preempts(stage: PreemptionStage) -> None:
    await stage.nodes(2)
    await stage.running("s", 2)
    await stage.known()
    await stage.group("g", 2, mode="NonStrict")
    for number in range(2):
        await stage.important("g", number)


async def too_large_a_gang(stage: PreemptionStage) -> None:
    await stage.nodes(2)
    await stage.running("s", 2)
    await stage.known()
    await stage.gang("g", 3)


async def cordoned_node_beside_one_of_equals(stage: PreemptionStage) -> None:
    await stage.nodes(1, 1)
    await stage.running("s", 1, priority=10)
    await stage.cordon(1)
    await stage.known()
    await stage.gang("g", 1)


async def waiting_members_are_victims(stage: PreemptionStage) -> None:
    """Members of a NonStrict gang wait for others with nodes in hand."""
    await stage.nodes(2)
    await stage.group("low", 3, mode="NonStrict", timeout=300)
    for number in range(3):
        await stage.important("low", number, 0)
    await stage.known()
    await stage.gang("g", 2)


async def gang_leaves_whole(stage: PreemptionStage) -> None:
    """One node is enough for the pod, and the gang needs both of its members."""
    await _gang_below(stage, 0, 0)


async def gang_cannot_leave_whole(stage: PreemptionStage) -> None:
    """One of its members is more important than the pod."""
    await _gang_below(stage, 0, 20)


async def pod_group_of_a_workload_leaves_whole(stage: PreemptionStage) -> None:
    """Its first member waits for the second one, and both have to leave for the pod."""
    await stage.nodes(1, 1)
    groups = [{"name": "workers", "policy": {"gang": {"minCount": 2}}}]
    await stage.create(GENERIC_WORKLOADS, {"metadata": {"name": "training"}, "spec": {"podGroups": groups}})
    reference = {"name": "training", "podGroup": "workers"}
    await stage.important("low", 0, 0, by="nothing", workloadRef=reference)
    await stage.known()
    assert not any(pod.spec.node_name for pod in stage.watched.list(PODS))
    await stage.important("low", 1, 0, by="nothing", workloadRef=reference)
    await stage.bound("low", 2)
    await stage.known()
    await stage.important("p", 0, by="nothing")


async def _gang_below(stage: PreemptionStage, *priorities: int) -> None:
    await stage.nodes(1, 1)
    await stage.group("low", 2)
    for number, priority in enumerate(priorities):
        await stage.important("low", number, priority)
    await stage.bound("low", 2)
    await stage.known()
    await stage.important("p", 0, by="nothing")


async def reservation_is_a_member(stage: PreemptionStage) -> None:
    await stage.nodes(2)
    await stage.running("s", 2)
    await stage.known()
    await stage.group("g", 2)
    await _reservation(stage, {POD_GROUP: "g"})
    await stage.important("g", 0)


async def reservation_preempts(stage: PreemptionStage) -> None:
    await stage.nodes(2)
    await stage.running("s", 2)
    await stage.known()
    await _reservation(stage, {})


async def _reservation(stage: PreemptionStage, labels: Mapping[str, str]) -> None:
    """One of the priority of the others that are important."""
    container = {"name": "main", "image": "pause", "resources": {"requests": {"cpu": "1", "memory": "64Mi"}}}
    template = {"spec": {"schedulerName": "koord-scheduler", "priority": 10, "containers": [container]}}
    spec = {"template": template, "owners": [{"labelSelector": {"matchLabels": {"app": "web"}}}], "ttl": "1h"}
    await stage.create(RESERVATIONS, {"metadata": {"name": "r", "labels": labels}, "spec": spec}, "")


async def members_of_a_quota_preempt(stage: PreemptionStage) -> None:
    await stage.nodes(2)
    await stage.create(ELASTIC_QUOTAS, quota("q", {"cpu": "2"}, {"cpu": "2", "memory": "64Gi"}))
    await stage.running("s", 2)
    await stage.known()
    await stage.gang("g", 2, other_labels={f"{PREFIX}/name": "q"})


async def quota_admits_a_part(stage: PreemptionStage) -> None:
    await stage.nodes(2)
    await stage.create(ELASTIC_QUOTAS, quota("q", {"cpu": "1"}, {"cpu": "1", "memory": "64Gi"}))
    await stage.running("s", 2)
    await stage.known()
    await stage.gang("g", 2, other_labels={f"{PREFIX}/name": "q"})


def _table(*scenarios: Scenario) -> Mapping[str, Scenario]:
    return MappingProxyType({each.__name__: each for each in scenarios})


SAME: Final = _table(
    gang_preempts_single_pods,
    only_those_leave_that_have_to,
    single_pod_preempts,
    gang_preempts_a_gang,
    victims_of_one_job_cost_once,
    least_important_victims,
    first_node_of_equals,
    more_important_ones_stay,
    jobs_stay_in_the_order_of_their_names,
    equals_stay,
    gang_that_never_preempts,
    protected_by_label,
    one_is_protected_by_label,
    budget_protects_nobody,
    members_of_two_sizes_preempt,
    gang_is_incomplete,
    nobody_gets_a_free_node_by_preemption,
    group_of_gangs_preempts,
    one_more_for_a_gang_that_runs_preempts,
    nominations_are_cleared,
    tried_again_while_victims_leave,
    one_leaves_already,
    less_important_nomination_is_cleared,
    node_of_nobody_who_may_leave,
    one_member_has_a_node,
    non_strict_gang_preempts,
    cordoned_node_beside_one_of_equals,
)
"""Where the original ends as ours does."""
OURS: Final = _table(
    gang_fits_on_no_single_node,
    member_is_larger_than_any_node,
    one_member_has_a_node,
    too_large_a_gang,
    quota_admits_a_part,
    reservation_is_a_member,
    waiting_members_are_victims,
)
"""Where the original evicts in vain, does not place the gang, or has nobody who waits."""
WHOLE: Final = _table(gang_leaves_whole, gang_cannot_leave_whole)
"""With ``gangPolicy: Whole``, which the original does not have."""
OF_WORKLOADS: Final = _table(pod_group_of_a_workload_leaves_whole)
"""The same, where the API server has the gate GenericWorkload."""
ALL_PLUGINS: Final = _table(reservation_preempts, members_of_a_quota_preempt)
"""With Reservation and ElasticQuota in the profile."""
