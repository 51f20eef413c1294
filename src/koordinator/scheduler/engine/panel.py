"""Classes of pods that are kept up to date together.

Where many classes take turns, each finds that dozens of rows have changed since it was last asked. To judge these rows
once for all classes, every few placements, costs hardly more than to do so for one. So classes that were asked twice
join the panel, if all their plugins can judge many kinds of pods at once (see Joint). What has changed after the
panel's version each follows by itself, row by row.

The panel does the usual case only: rows whose verdicts stay as they are. A class of which one may change is left
behind, and follows by itself when it is asked next.
"""

from __future__ import annotations

from collections.abc import Hashable
from functools import reduce
from operator import or_
from typing import Final

import numpy as np

from koordinator.scheduler.engine.board import Board, Scores
from koordinator.scheduler.engine.columns import Mask, NodeColumns, Rows
from koordinator.scheduler.engine.findings import FilterFindings, Findings
from koordinator.scheduler.engine.framework import ScoreType
from koordinator.scheduler.engine.joint_findings import JointFindings
from koordinator.scheduler.engine.leaders import INFEASIBLE

FAR: Final = 12
"""A placement makes two changes of a row: of its pods, of its load. Often its labels change when it is confirmed."""
CLASSES: Final = 256
"""With one more, all start anew."""
OLD: Final = 64
"""A class that is asked all the time follows by itself, but the panel must not fall so far behind that it ends."""
_FEW_CHANGES: Final = 256
"""After more, all start anew: only the classes that are still asked are worth it."""
_UNSETTLED: Final = -2
"""In place of a score: pods that come or go may change the verdict."""


class Panel:
    """``version``: all members but those that were left behind are current for that version of the columns."""

    def __init__(
        self, columns: NodeColumns, score_type: ScoreType, *, far: int = FAR, old: int = OLD, classes: int = CLASSES
    ) -> None:
        """Takes ``classes`` members; goes on when it is more than ``far`` changes behind and a member asks that is so,
        too, or when it is more than ``old`` changes behind."""
        self._columns = columns
        self._far = far
        self._old = old
        self._classes = classes
        self._score_type = score_type
        self.version = -1
        self._boards: list[Board] = []
        self._behind: set[int] = set()
        """The numbers of boards."""
        self._joint: dict[Hashable, JointFindings] = {}
        """By Findings.origin."""
        self._filters: list[JointFindings] = []
        self._scores: list[JointFindings] = []
        self._reads = columns.static_aspects
        """Bit mask of the aspects that members depend on."""
        self._rows = 0
        self._totals: Scores = np.zeros((0, 0), dtype=score_type)
        """(classes, rows), of which each member has one."""
        self._fixed: Scores = np.zeros((0, 0), dtype=score_type)
        """(rows, classes): what is fixed of the total as long as nodes stay as they are, INFEASIBLE where that rules
        the row out, or _UNSETTLED. One row of all classes lies together, since that is what is asked for."""

    def join(self, board: Board) -> bool:
        """``board`` is current for the present version; returns whether all its plugins can judge jointly."""
        if any(each.origin not in self._joint and each.joint() is None for each in board.moving):
            return False
        for findings in board.moving:
            findings.refresh()
        if len(self._boards) == self._classes or self._columns.size > self._rows:
            self.dissolve()
        if not self._boards:
            self._begin(board.totals.shape[0])
        number = len(self._boards)
        self._boards.append(board)
        self._reads = reduce(or_, (findings.reads for findings in board.moving), self._reads)
        for findings in board.moving:
            if findings.origin not in self._joint:
                self._joint[findings.origin] = self._new(findings)
            self._joint[findings.origin].take_in(number, findings, self)
        board.keep_totals_in(self._totals[number])
        board.number = number
        self._fix(number)
        return True

    def _begin(self, rows: int) -> None:
        self.version = self._columns.version
        self._rows = rows
        self._reads = self._columns.static_aspects
        # Memory is taken only for what is written to.
        self._totals = np.zeros((self._classes, rows), dtype=self._score_type)
        self._fixed = np.zeros((rows, self._classes), dtype=self._score_type)

    def _new(self, findings: Findings) -> JointFindings:
        joint = findings.joint()
        assert joint is not None, "join has asked"
        made = JointFindings(joint, self._columns, findings, classes=self._classes, rows=self._rows)
        (self._filters if isinstance(findings, FilterFindings) else self._scores).append(made)
        return made

    def _fix(self, number: int) -> None:
        self._fixed[: self._columns.size, number] = self._boards[number].fixed_totals(_UNSETTLED)

    def is_far(self, version: int) -> bool:
        """Whether so much has changed since that to follow together is worth it."""
        return self._columns.version - version > self._far

    def is_due(self, version: int) -> bool:
        """Whether to bring all up to date for a member that has come to ``version`` by itself."""
        return self.is_far(version) or self._columns.version - self.version > self._old

    def keep_up(self) -> None:
        """Bring members up to date, if they are far behind. Raises what plugins raise, with all of them dismissed."""
        columns = self._columns
        if not self.is_far(self.version):
            return
        changed = columns.changes_since(self.version, _FEW_CHANGES)
        if changed is None or columns.size > self._rows:
            self.dissolve()
            return
        rows = [row for row, aspects in changed.items() if aspects & self._reads and columns.alive[row]]
        try:
            if rows:
                self._judge(np.array(sorted(rows), dtype=np.intp))
        except Exception:
            self.dissolve()
            raise
        if reduce(or_, changed.values(), 0) & columns.static_aspects:
            self._behind.update(range(len(self._boards)))
        self.version = columns.version

    def _judge(self, rows: Rows) -> None:
        classes = len(self._boards)
        fixed = self._fixed.take(rows, axis=0)[:, :classes]
        for each in self._filters:
            ruled_out = each.filter(rows, classes)
            if ruled_out is not None:
                self._leave_behind(ruled_out)
        totals = fixed.copy()
        for of_plugin in self._scores:
            totals += of_plugin.score(rows, classes)
        if np.count_nonzero(fixed < 0):
            totals += (INFEASIBLE - totals) * (fixed < 0)
            unsettled = fixed == _UNSETTLED
            if np.count_nonzero(unsettled):
                self._leave_behind(unsettled.any(axis=0))
        self._totals[:classes, rows] = totals.T

    def _leave_behind(self, members: Mask) -> None:
        self._behind.update(np.flatnonzero(members).tolist())

    def is_current(self, number: int) -> bool:
        """Whether ``version`` holds for the member."""
        return number not in self._behind

    def settle(self, number: int) -> None:
        """The member has followed by itself."""
        self._behind.discard(number)
        self._fix(number)

    def dissolve(self) -> None:
        """Members follow by themselves from now on, from where they are."""
        boards, behind = self._boards, self._behind
        for number, board in enumerate(boards):
            board.dismiss(None if number in behind else self.version)
        for each in self._joint.values():
            each.dissolve()
        self._boards, self._behind = [], set()
        self._joint, self._filters, self._scores = {}, [], []
        self._totals = np.zeros((0, 0), dtype=self._score_type)
        self._fixed = np.zeros((0, 0), dtype=self._score_type)
