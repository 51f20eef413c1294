"""ClusterRoles with an aggregationRule: their rules are those of all ClusterRoles that it selects."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import closing
from typing import Any, Final

from koordinator.api.document import Document, same
from koordinator.cluster.access.policy import RBAC_GROUP
from koordinator.cluster.background import LoopBody
from koordinator.cluster.errors import ApiError
from koordinator.cluster.strategy.workload_rules import matches
from koordinator.cluster.verbs.environment import Environment
from koordinator.cluster.verbs.target import Target, decode
from koordinator.cluster.verbs.update import modify

NAME: Final = "clusterrole-aggregation-controller"


def aggregated_rules(role: Mapping[str, Any], roles: Iterable[Mapping[str, Any]]) -> list[Document]:
    """The rules of what ``role`` selects, in the order of names, each once."""
    selectors = role["aggregationRule"].get("clusterRoleSelectors") or ()
    rules: list[Document] = []
    for selector in selectors:
        for other in sorted(roles, key=lambda each: str(each["metadata"]["name"])):
            if other["metadata"]["name"] == role["metadata"]["name"]:
                continue
            if matches(selector, other["metadata"].get("labels") or {}):
                rules += [rule for rule in other.get("rules") or () if rule not in rules]
    return rules


class ClusterRoleAggregation:
    """One loop: every change of a ClusterRole is a reason to look at those that aggregate."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        resource = environment.registry.stored[RBAC_GROUP, "clusterroles"]
        assert resource is not None
        self._resource = resource

    def loops(self) -> Mapping[str, LoopBody]:
        return {NAME: self._run}

    async def _run(self) -> AsyncIterator[None]:
        storage = self._environment.storage
        while True:
            with closing(storage.watch(self._resource.prefix, storage.revision())) as cursor:
                if await self._aggregate_all():
                    # What was written may be part of another one.
                    yield
                    continue
                yield
                if await cursor.next() is None:
                    return

    async def _aggregate_all(self) -> bool:
        """True when something was written."""
        stored = self._environment.storage.list(self._resource.prefix).items
        roles = [decode(self._resource, each) for each in stored]
        written = False
        for role in roles:
            if role.get("aggregationRule"):
                written |= await self._aggregate(role, roles)
        return written

    async def _aggregate(self, role: Document, roles: Sequence[Document]) -> bool:
        rules = aggregated_rules(role, roles)
        if same(rules, role.get("rules") or []):
            return False
        target = Target(self._resource, None, role["metadata"]["name"])
        try:
            await modify(self._environment, target, lambda old: {**old, "rules": rules})
        except ApiError as error:
            if error.code != 404:
                raise
        return True
