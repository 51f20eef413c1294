"""The steps that the cluster goes through: a configuration, nodes that arrive with it, reports that are new."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from tests.real.overcommit import configuration
from tests.real.overcommit.node_case import NodeCase, node_case, report, zones

FIRST: Final = "good"
BROKEN: Final = "broken"
INVALID: Final = "invalid"
OTHER: Final = "other"
OFF: Final = "off"


@dataclass(frozen=True, slots=True)
class Step:
    name: str
    configuration: Mapping[str, str]
    arrivals: tuple[NodeCase, ...] = ()
    reports: tuple[NodeCase, ...] = ()
    """Of nodes that are there, with what they report from now on."""
    is_steady: bool = False
    """Whether afterwards it is seen what is written though nothing has changed."""


def _arrival(step: str) -> tuple[NodeCase, ...]:
    return (node_case(f"arrives-{step}", topology=zones(("50", "60G"), ("50", "60G"))),)


_SELDOM: Final = {"updateTimeThresholdSeconds": 3600, "resourceDiffThreshold": 0.1}
SELDOM_WRITTEN: Final = (
    node_case("differs-little", strategy=_SELDOM, topology=zones(("50", "60G"), ("50", "60G"))),
    node_case("differs-much", strategy=_SELDOM, topology=zones(("50", "60G"), ("50", "60G"))),
)
_LITTLE, _MUCH = report(system=("8", "13G")), report(system=("20", "14G"))

STEPS: Final = (
    Step(FIRST, configuration.GOOD, (*_arrival(FIRST), *SELDOM_WRITTEN), is_steady=True),
    Step(
        BROKEN,
        configuration.BROKEN,
        _arrival(BROKEN),
        tuple(replace(case, report=said) for case, said in zip(SELDOM_WRITTEN, (_LITTLE, _MUCH), strict=True)),
    ),
    Step(INVALID, configuration.INVALID, _arrival(INVALID)),
    Step(OTHER, configuration.OTHER, _arrival(OTHER)),
    Step(OFF, configuration.OFF, _arrival(OFF)),
)
