"""What a package may offer as plugins, good and bad; the tests declare entry points to it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, ClassVar

import msgspec

from koordinator.api.pod import Pod
from koordinator.scheduler.engine.binding_points import ClusterWriter
from koordinator.scheduler.engine.columns import Aspect, Ints, Rows
from koordinator.scheduler.engine.framework import (
    FilterPlugin,
    Plugin,
    PreFilterPlugin,
    PreFilterResult,
    Reason,
    ScorePlugin,
)
from koordinator.scheduler.engine.framework_hooks import Controller, ControllerProvider
from koordinator.scheduler.engine.pod_info import PodInfo
from koordinator.scheduler.plugins.scalar import ScalarFilterPlugin, ScalarNode, ScalarScorePlugin


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Limits(msgspec.Struct, rename="camel"):
    most_pods: int = 10


@dataclass
class PickyArgs:
    zone: str
    colour: Colour = Colour.RED
    limits: Limits = field(default_factory=Limits)
    names: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.zone == "moon":
            raise ValueError("there is no air")


class Picky(ScalarFilterPlugin, ScalarScorePlugin):
    """Filter and Score, and arguments of its own."""

    name = "Picky"
    args_type = PickyArgs

    def filter_node(self, pod: Pod, node: ScalarNode) -> str | None:
        return None

    def score_node(self, pod: Pod, node: ScalarNode) -> int:
        return 1


class Easy(ScorePlugin):
    """Score with PreScore, and arguments as they are written."""

    name = "Easy"
    score_reads: ClassVar[tuple[Aspect, ...]] = (Aspect.NODE,)

    def pre_score(self, pod: PodInfo) -> Any:
        return None

    def score(self, pod: PodInfo, state: Any, rows: Rows) -> Ints:
        return rows * 0


class Beside(ControllerProvider):
    """Only a controller: no point of upstream's."""

    name = "Beside"

    def controllers(self, writer: ClusterWriter) -> Sequence[Controller]:
        return ()


class Sleeper(PreFilterPlugin):
    """Never says what would help."""

    name = "Sleeper"

    def pre_filter(self, pod: PodInfo) -> PreFilterResult:
        return PreFilterResult(rejection=Reason("no"))


class Falling(Easy):
    """Cannot be made."""

    name = "Falling"

    def __init__(self, args: Any, view: Any) -> None:
        raise KeyError("the moon")


class Orphan(Easy):
    """Forgets its parents."""

    name = "Orphan"

    def __init__(self, args: Any, view: Any) -> None:
        self.args = args


class NotAPlugin:
    name = "NotAPlugin"


class Idle(Plugin):
    name = "Idle"


class Half(FilterPlugin):
    name = "Half"
    reads: ClassVar[tuple[Aspect, ...]] = (Aspect.NODE,)


class Blind(Easy):
    name = "Blind"
    score_reads = ("pods",)  # type: ignore[assignment]


class Vague(Easy):
    name = "Vague"
    args_type = dict


class Composed(Plugin):
    """Filter and Score are parts, of which one does not register events."""

    name = "Composed"

    class Filtering(ScalarFilterPlugin):
        name = "Composed"

        def filter_node(self, pod: Pod, node: ScalarNode) -> str | None:
            return None

    class Scoring(Easy):
        name = "Composed"

    part_types = (Filtering, Scoring)


class Foreign(Plugin):
    name = "Foreign"
    part_types = (Easy,)


class Halves(Plugin):
    name = "Halves"

    class Part(Half):
        name = "Halves"

    part_types = (Part,)


class Mixed(Plugin):
    name = "Mixed"
    part_types = (NotAPlugin,)  # type: ignore[assignment]


class Disowned(Plugin):
    name = "Disowned"

    class Part(Orphan):
        name = "Disowned"

    part_types = (Part,)


class NodeName(Easy):
    name = "NodeName"
