"""One round of the executor: what it has seen and written of a family of files, and what it says of it afterwards."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from koordinator.koordlet.executor.arbiter import Step, allows, ancestors
from koordinator.koordlet.executor.family import Family
from koordinator.koordlet.executor.wishes import Explanation, Setting
from koordinator.node.kernel_files import Target, Value


@dataclass(frozen=True, slots=True)
class Written:
    """One write that the kernel took, or in observe-only mode one that it would have been given."""

    path: str
    text: str
    setting: Setting
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Round:
    """What one ``apply`` did."""

    written: tuple[Written, ...] = ()
    failed: tuple[Explanation, ...] = ()
    deferred: int = 0
    """Steps that were left for the next round."""


@dataclass(slots=True)
class Pass:
    """The state of one ``apply`` in one family of files."""

    now: float
    family: Family
    writes_left: int
    contents: dict[str, str] = field(default_factory=dict)
    written: list[Written] = field(default_factory=list)
    broken: set[Target] = field(default_factory=set)
    """Targets with nothing more to try in this round."""
    live: dict[Target, Value | None] = field(default_factory=dict)
    """What the kernel shows, as far as we have written it since."""
    children: dict[Target, list[Target]] = field(default_factory=dict)

    def see(self, present: Mapping[Target, Value | None]) -> None:
        self.live = dict(present)
        for target in present:
            for above in ancestors(target):
                self.children.setdefault(above, []).append(target)

    def obstacle(self, step: Step) -> Target | None:
        """A parent that has less, or a child that has more, than the step would give: since one of them was refused."""
        for above in ancestors(step.target):
            if not allows(step.target.file, self.live.get(above), step.value):
                return above
        for child in self.children.get(step.target, ()):
            if not allows(step.target.file, step.value, self.live.get(child)):
                return child
        return None
