"""``--debug-scores``: the best nodes of a decision as a Markdown table, by total score, scores weighted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from koordinator.scheduler.engine.class_state import INFEASIBLE, ClassState
from koordinator.scheduler.engine.columns import NodeColumns


def score_lines(class_state: ClassState, columns: NodeColumns, key: str, chosen: str, count: int) -> Iterator[str]:
    """The heading and the rows of the table for the pod ``key``; nothing when no node is feasible."""
    totals = class_state.totals[: columns.size]
    order = np.argsort(-totals, kind="stable").tolist()
    feasible = [row for row in order if totals[row] != INFEASIBLE]
    if not feasible:
        return
    # Among equals, the node that was taken comes first.
    feasible.sort(key=lambda row: (-int(totals[row]), columns.names[row] != chosen, columns.names[row]))
    names = class_state.score_names
    yield f"Top{count} scores for Pod: {key}, feasibleNodes: {len(feasible)}, plugins:[{' '.join(names)}]"
    rows = [(columns.names[row], class_state.scores_of(row)) for row in feasible[:count]]
    yield from markdown(key, names, rows)


def markdown(key: str, plugins: Sequence[str], rows: Iterable[tuple[str, Sequence[int]]]) -> Iterator[str]:
    """Lines of the table; ``rows`` are nodes with a score for each of ``plugins``."""
    yield _line(("#", "Pod", "Node", "Score", *plugins))
    yield f"| --- | --- | --- | ---:|{' ---:|' * len(plugins)}"
    for number, (node, scores) in enumerate(rows):
        yield _line((number, key, node, sum(scores), *scores))


def _line(cells: Iterable[object]) -> str:
    return f"| {' | '.join(str(cell) for cell in cells)} |"
