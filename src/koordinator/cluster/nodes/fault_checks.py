"""The rules for a scenario's faults."""

from __future__ import annotations

from collections.abc import Collection
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from koordinator.api.duration import GoDuration
from koordinator.base.durations import format_duration
from koordinator.base.errors import ConfigurationError
from koordinator.cluster.nodes.fault_kinds import ALLOWED, FAULT_ANNOTATION, Fault

if TYPE_CHECKING:
    from koordinator.cluster.nodes.scenario import PlannedFault, Scenario


def check_faults(scenario: Scenario, names: Collection[str]) -> None:
    """Raise ConfigurationError for the first rule that does not hold. ``names``: those of all nodes."""
    for index, group in enumerate(scenario.node_groups):
        text = group.annotations.get(FAULT_ANNOTATION)
        if text is not None and text not in set(Fault):
            raise ConfigurationError(f"nodeGroups[{index}].annotations.{FAULT_ANNOTATION}", text, f"one of {ALLOWED}")
    for index, planned in enumerate(scenario.faults):
        _check_fault(f"faults[{index}]", planned, names)


def _check_fault(at: str, planned: PlannedFault, names: Collection[str]) -> None:
    if planned.fault not in set(Fault):
        raise ConfigurationError(f"{at}.fault", planned.fault, f"one of {ALLOWED}")
    if not planned.nodes:
        raise ConfigurationError(f"{at}.nodes", planned.nodes, "at least one name or pattern, such as small-*")
    for index, pattern in enumerate(planned.nodes):
        if not any(fnmatchcase(name, pattern) for name in names):
            some = ", ".join(sorted(names)[:3])
            raise ConfigurationError(
                f"{at}.nodes[{index}]", pattern, f"a node of the scenario, which has {len(names)}, such as {some}"
            )
    if planned.after < GoDuration():
        raise ConfigurationError(f"{at}.after", format_duration(planned.after), "0 or more")
    if planned.lasts is not None and planned.lasts <= GoDuration():
        raise ConfigurationError(f"{at}.lasts", format_duration(planned.lasts), "more than 0, or left out")
