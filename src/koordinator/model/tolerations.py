"""Whether tolerations match a taint (k8s.io/component-helpers, ToleratesTaint)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from koordinator.api.node import Taint
from koordinator.api.pod import Toleration

NO_SCHEDULE: Final = "NoSchedule"
NO_EXECUTE: Final = "NoExecute"
PREFER_NO_SCHEDULE: Final = "PreferNoSchedule"


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    """Empty effect and key of a toleration match all; the operator defaults to Equal."""
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator in ("", "Equal"):
        return toleration.value == taint.value
    return toleration.operator == "Exists"


def tolerated(tolerations: Iterable[Toleration], taint: Taint) -> bool:
    """Whether any of ``tolerations`` matches ``taint``."""
    return any(tolerates(toleration, taint) for toleration in tolerations)


def untolerated(tolerations: Iterable[Toleration], taints: Iterable[Taint]) -> Iterator[Taint]:
    """The taints that keep a pod off a node."""
    hard = (taint for taint in taints if taint.effect in (NO_SCHEDULE, NO_EXECUTE))
    return (taint for taint in hard if not tolerated(tolerations, taint))


def taint_text(taint: Taint) -> str:
    """The taint in kubectl's format: ``key=value:effect``."""
    return f"{taint.key}={taint.value}:{taint.effect}" if taint.value else f"{taint.key}:{taint.effect}"
