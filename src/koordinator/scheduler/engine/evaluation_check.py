"""Compares what is cached for a class of pods with an evaluation from scratch: a debugging aid, also used by tests.

Class state, cached results and dirty nodes exist for speed alone. The cached result of each node has to equal the
result of calling all plugins for every node again, without sharing and without batches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Final

from koordinator.scheduler.engine.evaluation import Evaluation
from koordinator.scheduler.engine.profile import Profile
from koordinator.scheduler.engine.view import ClusterView

_SHOWN: Final = 5
_Result = tuple[int, tuple[str, int]]
"""The total of a node, and the plugin that rejects it with its code; an empty name where none does."""


class EvaluationCheck:
    """``refresh`` replaces Evaluation.refresh in the engine of ``profile``, before each decision.

    It first calls the ``refresh`` that was passed; then ``on_difference`` is called with one sentence for each node, a
    few at most, whose cached result differs from that of a fresh evaluation.
    """

    def __init__(
        self,
        profile: Profile,
        view: ClusterView,
        on_difference: Callable[[str], None],
        refresh: Callable[[Evaluation], None] = Evaluation.refresh,
    ) -> None:
        self._profile = profile
        self._view = view
        self._on_difference = on_difference
        self._refresh = refresh
        self.checked = 0
        """The number of evaluations compared."""

    def refresh(self, evaluation: Evaluation) -> None:
        """Refresh the evaluation and compare it. Raises what plugins raise."""
        self._refresh(evaluation)
        self.checked += 1
        fresh = Evaluation(self._profile, self._view, evaluation.incoming)
        fresh.refresh()
        for difference in islice(self._differences(evaluation, fresh), _SHOWN):
            self._on_difference(difference)

    def _differences(self, cached: Evaluation, fresh: Evaluation) -> Iterator[str]:
        about = f"for pods like {cached.incoming.key}"
        if cached.plan.rejection != fresh.plan.rejection:
            yield f"{about}: PreFilter's result is cached as {cached.plan.rejection!r}, now {fresh.plan.rejection!r}"
            return
        if cached.plan.rejection is not None:
            return
        known, expected = self._results(cached), self._results(fresh)
        for name, result in expected.items():
            if known[name] != result:
                yield f"node {name} {about}: cached are {_text(known[name])}, a fresh evaluation has {_text(result)}"

    def _results(self, evaluation: Evaluation) -> Mapping[str, _Result]:
        rejected = {
            row: (failure.plugin.name, failure.code)
            for failure in evaluation.failures()
            for row in failure.rows.tolist()
        }
        return {
            name: (evaluation.totals.item(row), rejected.get(row, ("", 0)))
            for name, row in self._view.columns.row_of.items()
        }


def _text(result: _Result) -> str:
    total, (plugin, code) = result
    return f"code {code} of {plugin}" if plugin else f"a total score of {total}"
