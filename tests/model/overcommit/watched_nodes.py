"""One node, looked at every minute or so."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any, Final

from koordinator.api.node import Node
from koordinator.model.overcommit.abnormality import NodeHealth, next_look, observe
from koordinator.model.overcommit.facts import metric_facts, node_facts
from koordinator.model.overcommit.node_report import NodeReport
from koordinator.model.overcommit.policies import CapacityPolicy
from koordinator.model.slo_configuration.abnormality_limits import DEFAULT_LIMITS, AbnormalityLimits
from tests.model.overcommit.node_objects import NOW, Pair, a_metric, a_node

NODE: Final = a_node(("100", "120G"))
POLICY: Final = CapacityPolicy(enable=True)
MINUTE: Final = timedelta(minutes=1)
JUST_AFTER: Final = timedelta(seconds=1)
SOUND: Final[Pair] = ("50", "55G")
ABOVE: Final[Pair] = ("106", "55G")


class Watched:
    """``runs_pods``: whether there are pods on it."""

    def __init__(
        self,
        health: NodeHealth | None = None,
        node: Node = NODE,
        limits: AbnormalityLimits = DEFAULT_LIMITS,
        *,
        runs_pods: bool = True,
    ) -> None:
        self.health = health
        self.node = node
        self.now = NOW
        self.metric: NodeReport | None = None
        self._limits = limits
        self._runs_pods = runs_pods
        self._count = 0

    @property
    def known(self) -> NodeHealth:
        assert self.health is not None
        return self.health

    def report(self, usage: Pair | None = SOUND, updated: datetime | None = None, **given: Any) -> list[str]:
        """A report that differs from all before it in some pod's usage."""
        self._count += 1
        pods = given.pop("pods", {"p": ("1", str(self._count))})
        self.metric = a_metric(pods, usage=usage, updated=updated or self.now, **given)
        return self.look()

    def look(self) -> list[str]:
        facts = None if self.metric is None else metric_facts(self.metric)
        self.health = observe(
            self.health, node_facts(self.node), facts, POLICY, self.now, self._limits, runs_pods=self._runs_pods
        )
        return [finding.code for finding in self.health.findings]

    def next_look(self) -> datetime | None:
        return next_look(self.known, POLICY, self.now, self._limits)

    def pass_minutes(self, count: float = 1) -> None:
        self.now += count * MINUTE

    def reports(self, usages: Iterable[Pair | None], **given: Any) -> list[list[str]]:
        """One a minute; the codes after each."""
        codes = []
        for usage in usages:
            codes.append(self.report(usage, **given))
            self.pass_minutes()
        return codes
