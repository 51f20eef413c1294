"""A simulation: the results of filters and allocators if some pods were gone and others were there, on any nodes.

PostFilter plugins search for victims with it, and plugins that plan for many pods at once, such as the members of a
gang, use it, too. Every change in its block is undone at the end of the block, see ``Journal``, also when a plugin
fails in between or the time limit is exceeded.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from types import TracebackType
from typing import Self

import numpy as np

from koordinator.scheduler.engine.allocations import Allocation
from koordinator.scheduler.engine.binding_points import AllocatorPlugin, CycleState
from koordinator.scheduler.engine.cached_results import CachedFilterResults, Failure
from koordinator.scheduler.engine.class_plan import ClassPlan, plan_class
from koordinator.scheduler.engine.cluster_state import ClusterState
from koordinator.scheduler.engine.columns import NodeReference
from koordinator.scheduler.engine.decision import restricted_text
from koordinator.scheduler.engine.evaluation import Evaluation
from koordinator.scheduler.engine.framework import Reason
from koordinator.scheduler.engine.journal import Journal, Mark
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.engine.post_filter import FailedAttempt, Predicate, VictimUnit
from koordinator.scheduler.engine.profile import Profile
from koordinator.scheduler.engine.row_overlays import RowOverlays
from koordinator.scheduler.engine.view import ClusterView


class _Planned:
    """The evaluation plan of one class of pods; ``evaluation`` holds for the actual nodes."""

    def __init__(self, profile: Profile, plan: ClassPlan, pod: PodInfo, evaluation: Evaluation | None) -> None:
        self.plan = plan
        self.pod = plan.pod or pod
        self.overlays = RowOverlays(profile, self.pod)
        self._evaluation = evaluation
        self.far_reaching = [entry for entry in plan.filters if entry.is_cross_node]

    def failure(self, row: int, *, added: bool) -> Failure | None:
        """The first filter that rejects the row."""
        filters = self._evaluation.filters_to_run(row, added=added) if self._evaluation is not None else None
        return first_failure(self.plan.filters if filters is None else filters, self.pod, row)


class Simulation:
    """``with simulation:``, a block in which pods can be hypothetically removed and placed. Simulations may be nested.

    ``known`` are classes of pods with evaluations that are current, by their keys: fewer filters need to run.
    """

    def __init__(
        self,
        profile: Profile,
        state: ClusterState,
        check_time: Callable[[], None],
        known: Iterable[tuple[Hashable, Evaluation]] = (),
    ) -> None:
        self._profile = profile
        self._state = state
        self._check_time = check_time
        self._journal = state.view.simulate()
        self._planned = {key: _Planned(profile, each.plan, each.pod, each) for key, each in known}
        self._predicates: list[Predicate] = []

    def __enter__(self) -> Self:
        self._journal.__enter__()
        for planned in self._planned.values():
            self._journal.inform(planned.far_reaching)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._journal.__exit__(kind, error, traceback)

    def require(self, predicate: Predicate) -> None:
        """Call ``predicate`` for each pod that passes all filters, from now on."""
        self._predicates.append(predicate)

    @property
    def mark(self) -> Mark:
        """The present position, to ``undo`` all later changes."""
        return self._journal.mark

    def undo(self, mark: Mark) -> None:
        """Undo the changes since ``mark``."""
        self._journal.undo(mark)

    def remove(self, pod: PodInfo) -> bool:
        """Take the pod off its node, with its allocations; False if it is on no known node."""
        return self._journal.remove(pod.uid)

    def place(self, pod: PodInfo, row: int) -> Reason | None:
        """Put the pod on the node of ``row``, with what allocators give it there. Returns a reason, with nothing
        changed, if one of them cannot, or the pod is on a node already."""
        mark, node, cycle = self.mark, self._state.view.columns.reference(row), CycleState(pod)
        cycle.node = node
        if not self._journal.place(pod, row):
            return Reason(f"the pod is on node {self._state.node_of(pod.uid)} already")
        refusal: Reason | None = None
        try:
            for name, result in allocate(self._profile.for_pod(pod), cycle, pod, node):
                if isinstance(result, Reason):
                    refusal = result
                else:
                    self._journal.allocate(row, pod, name, result)
        except BaseException:
            self.undo(mark)
            raise
        if refusal is not None:
            self.undo(mark)
        return refusal

    def admit(self, pod: PodInfo, row: int, *, ignoring: Collection[str] = ()) -> Failure | Reason | None:
        """Put the pod on the node of ``row`` if it ``fits`` there and gets what it needs of allocators; otherwise
        return why not, with nothing changed."""
        return self.failure(pod, row, ignoring=ignoring) or self.place(pod, row)

    def fits(self, pod: PodInfo, row: int, *, ignoring: Collection[str] = ()) -> bool:
        """Whether the pod would pass all filters and predicates on ``row``. Nominated pods of at least its priority
        count as being there, except those whose uid is in ``ignoring``."""
        return self.failure(pod, row, ignoring=ignoring) is None

    def failure(self, pod: PodInfo, row: int, *, ignoring: Collection[str] = ()) -> Failure | Reason | None:
        """What would reject the row for the pod: a filter, or else PreFilter or a predicate with a reason."""
        self._check_time()
        planned = self._plan_of(pod)
        if planned.plan.rejection is not None:
            return planned.plan.rejection[1]
        names = planned.plan.restricted_to
        if names is not None and self._state.view.columns.names[row] not in names:
            return Reason(restricted_text(planned.plan.restricted_by), unresolvable=True)
        mark = self.mark
        try:
            place_nominated(self._journal, self._profile.allocators, self._state.view, pod, row, ignoring)
            if planned.overlays:
                planned.overlays.show(self._journal, np.array((row,), dtype=np.intp))
            if planned.far_reaching:
                self._journal.inform(planned.far_reaching)
            found: Failure | Reason | None = planned.failure(row, added=self._journal.has_added)
        finally:
            self.undo(mark)
        return found or self._predicted(pod, row)

    def reprieve(self, pod: PodInfo, row: int, candidates: Sequence[PodInfo]) -> list[PodInfo] | None:
        """Those of ``candidates`` that have to leave ``row`` for the pod to fit: all are removed, then as many as
        possible are put back. The others stay removed in the simulation. None, with nothing changed, when the pod does
        not fit even without all of them."""
        mark = self.mark
        for candidate in candidates:
            self.remove(candidate)
        if not self.fits(pod, row):
            self.undo(mark)
            return None
        units = [VictimUnit((candidate,)) for candidate in candidates]
        return [unit.pods[0] for unit in self.put_back_while(lambda: self.fits(pod, row), units)]

    def put_back_while(self, fits: Callable[[], bool], candidates: Iterable[VictimUnit]) -> list[VictimUnit]:
        """Put each of the removed ``candidates`` back (reprieve it), from the front, if ``fits`` then returns True;
        what ``fits`` changes is undone. Returns the others, which stay removed in the simulation with their
        companions."""
        victims: list[VictimUnit] = []
        leaving: set[str] = set()
        for candidate in candidates:
            if candidate.pods[0].uid in leaving:
                continue
            before = self.mark
            for pod in candidate.pods:
                self._journal.put_back(pod.uid)
            returned = self.mark
            is_reprieved = fits()
            self.undo(returned if is_reprieved else before)
            if not is_reprieved:
                victims.append(candidate)
                for companion in candidate.companions:
                    self.remove(companion)
                    leaving.add(companion.uid)
        return victims

    def _predicted(self, pod: PodInfo, row: int) -> Reason | None:
        for predicate in self._predicates:
            reason = predicate(pod, row)
            if reason is not None:
                return reason
        return None

    def _plan_of(self, pod: PodInfo) -> _Planned:
        key = self._profile.class_key(pod)
        planned = self._planned.get(key)
        if planned is None:
            plan = plan_class(self._profile, self._state.view, pod, with_scores=False)
            planned = self._planned[key] = _Planned(self._profile, plan, pod, None)
        return planned


Simulate = Callable[[FailedAttempt], Simulation]
"""``Handle.simulate``."""


def first_failure(filters: Iterable[CachedFilterResults], pod: PodInfo, row: int) -> Failure | None:
    """The rejection by the first of the filters that rejects the row."""
    for entry in filters:
        if (failure := entry.failure(pod, row)) is not None:
            return failure
    return None


def reasons_of(failure: Failure | Reason, pod: PodInfo) -> Sequence[Reason]:
    """The reasons of a failure of the pod, as shown to users."""
    return failure.reasons(pod) if isinstance(failure, Failure) else (failure,)


def allocate(
    profile: Profile, state: CycleState, pod: PodInfo, node: NodeReference
) -> Sequence[tuple[str, Allocation | Reason]]:
    """The allocation of each plugin of the pod's ``profile`` on the node, by name; ends with the first reason. All see
    the same node: nothing is taken from it before all have returned."""
    for transformer in profile.allocation_transformers:
        if transformer.transforms(pod):
            overlays = RowOverlays(profile.whole or profile, pod)
            return overlays.evaluate(node.index, lambda: _allocate(profile.allocators, state, pod, node))
    return _allocate(profile.allocators, state, pod, node)


def _allocate(
    plugins: Iterable[AllocatorPlugin], state: CycleState, pod: PodInfo, node: NodeReference
) -> Sequence[tuple[str, Allocation | Reason]]:
    results: list[tuple[str, Allocation | Reason]] = []
    for plugin in plugins:
        result = plugin.allocate(state, pod, node)
        if result is not None:
            results.append((plugin.name, result))
            if isinstance(result, Reason):
                break
    return results


def place_nominated(
    journal: Journal,
    plugins: Collection[AllocatorPlugin],
    view: ClusterView,
    pod: PodInfo,
    row: int,
    ignoring: Collection[str] = (),
) -> None:
    """Place the pods of ``nominated_before``, except those whose uid is in ``ignoring``, with what they are expected to
    get: whatever is asked about the row for ``pod``, they count as being there."""
    for other in nominated_before(view, pod, row):
        if other.uid not in ignoring and journal.place(other, row):
            for plugin, allocation in nominated_allocations(plugins, view, other):
                journal.allocate(row, other, plugin, allocation)


def nominated_allocations(
    plugins: Iterable[AllocatorPlugin], view: ClusterView, pod: PodInfo
) -> list[tuple[str, Allocation]]:
    """The expected allocations of the pod on the node that it is nominated to, by name of the plugin."""
    node_name = view.nominations.node_of(pod.uid)
    found = [(each.name, each.nominated_allocation(pod, node_name)) for each in plugins]
    return [(name, allocation) for name, allocation in found if allocation is not None]


def nominated_before(view: ClusterView, pod: PodInfo, row: int) -> list[PodInfo]:
    """The pods nominated to ``row`` that keep ``pod`` from taking its resources: not on a node yet, and of higher
    priority, or of equal priority and nominated earlier."""
    if view.nominations.is_empty:
        return []
    nominated = view.nominations.on(view.columns.names[row])
    found: list[PodInfo] = []
    seen = False
    for other in nominated:
        if other.uid == pod.uid:
            # Pods of equal priority that come later wait for it, or each would wait for the other.
            seen = True
            continue
        # Another scheduler does not know of our nominations: if equals counted, we would wait for each other, too.
        counts_equals = not seen and not view.nominations.is_foreign(other.uid)
        if other.priority + counts_equals > pod.priority and view.node_of(other.uid) is None:
            found.append(other)
    return found
