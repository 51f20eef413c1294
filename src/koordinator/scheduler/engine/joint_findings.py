"""The findings of one plugin for many classes of pods, in one matrix, brought up to date together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from koordinator.scheduler.engine.columns import Ints, Mask, NodeColumns, Rows
from koordinator.scheduler.engine.findings import Carrier, FilterFindings, Findings, ScoreFindings
from koordinator.scheduler.engine.joint import Joint

Values = NDArray[np.signedinteger[Any]]


class JointFindings:
    """Members have places from 1 on; 0 stands for classes that the plugin has nothing to say about."""

    def __init__(self, joint: Joint, columns: NodeColumns, like: Findings, *, classes: int, rows: int) -> None:
        self._joint = joint
        self.judge: Callable[[Rows], Ints] = joint.judge
        """May be replaced by one that measures what it takes."""
        self._columns = columns
        self._members: list[Findings] = []
        self._place_of: dict[int, int] = {}
        """By the identity of the member."""
        self._places: NDArray[np.intp] = np.zeros(classes, dtype=np.intp)
        """By class."""
        self._values: Values = np.zeros((classes + 1, rows), dtype=like.values.dtype)
        self._has_ruled_out = False

    def take_in(self, number: int, findings: Findings, carrier: Carrier) -> None:
        """The class ``number`` goes by ``findings``, which are current. They become a member if they are none yet."""
        place = self._place_of.get(id(findings))
        if place is None:
            self._joint.put(len(self._members), findings.pod, findings.state)
            self._members.append(findings)
            place = self._place_of[id(findings)] = len(self._members)
            values, size = self._values[place], self._columns.size
            values[:size] = findings.values[:size]
            self._has_ruled_out |= bool(np.count_nonzero(values))
            findings.values, findings.carrier, findings.together = values, carrier, self
        self._places[number] = place

    def filter(self, rows: Rows, classes: int) -> Mask | None:
        """Judge ``rows``; returns which of the first ``classes`` may not go to one of them, None if all may."""
        codes = self.judge(rows)
        is_any = np.count_nonzero(codes)
        if not is_any and not self._has_ruled_out:
            return None
        self._has_ruled_out = True
        own = self._values[1 : len(self._members) + 1]
        news = codes != own.take(rows, axis=1).T
        for index in np.flatnonzero(news.any(axis=0)).tolist():
            member = self._members[index]
            assert isinstance(member, FilterFindings)
            member.note_news()
        own[:, rows] = codes.T
        if not is_any:
            return None
        ruled_out = np.zeros(len(self._members) + 1, dtype=np.bool_)
        codes.any(axis=0, out=ruled_out[1:])
        return ruled_out[self._places[:classes]]

    def score(self, rows: Rows, classes: int) -> Values:
        """Judge ``rows``; returns weighted scores of shape (rows, classes)."""
        scores, first = self.judge(rows), self._members[0]
        assert isinstance(first, ScoreFindings)
        first.check(scores.ravel())
        weighted = np.zeros((scores.shape[0], scores.shape[1] + 1), dtype=self._values.dtype)
        weighted[:, 1:] = scores if first.factor == 1 else scores * first.factor
        self._values[: weighted.shape[1], rows] = weighted.T
        return weighted.take(self._places[:classes], axis=1)

    def dissolve(self) -> None:
        """Members have arrays of their own again."""
        for findings in self._members:
            findings.adopt()
            findings.carrier = findings.together = None
            if findings.values.base is self._values:
                findings.values = findings.values.copy()
