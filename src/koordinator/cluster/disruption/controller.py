"""Follows pods and budgets, and writes what has changed."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import closing
from typing import Final

from koordinator.api.document import Document, copied
from koordinator.cluster.background import LoopBody
from koordinator.cluster.disruption.replicas import ControllerReplicas
from koordinator.cluster.disruption.status import budget_status, recheck_after
from koordinator.cluster.errors import ApiError
from koordinator.cluster.storage.interface import Change, OutcomeUnknown, Stored, WriteFailed
from koordinator.cluster.verbs.disruption_budgets import budget_resource, selects
from koordinator.cluster.verbs.encoding import decode
from koordinator.cluster.verbs.environment import Environment
from koordinator.cluster.verbs.modify import modify
from koordinator.cluster.verbs.target import Target

_LOG = logging.getLogger(__name__)
_RECHECK_SECONDS: Final = 1.0
"""How often it is looked whether an eviction is overdue or a write is to be tried again."""
_RETRY_SECONDS: Final = 5.0

_Key = tuple[str, str]
"""Namespace and name of a budget."""


class DisruptionController:
    """Costs next to nothing while there are no budgets."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._budgets: dict[str, dict[str, Document]] = {}
        self._due: dict[_Key, float] = {}
        self._replicas = ControllerReplicas(environment)
        pods = environment.registry.stored("", "pods")
        assert pods is not None
        self._pods = pods
        self._resource = budget_resource(environment)

    def loops(self) -> Mapping[str, LoopBody]:
        """Name -> what runs until the store closes."""
        return {
            "disruption-budgets": self._follow_budgets,
            "disruption-budget-pods": self._follow_pods,
            "disruption-budget-evictions": self._recheck,
        }

    async def _follow_budgets(self) -> AsyncIterator[None]:
        storage, prefix = self._environment.storage, self._resource.storage_prefix()
        page = storage.list(prefix)
        self._budgets.clear()
        self._due.clear()
        with closing(storage.watch(prefix, page.revision)) as cursor:
            await self._note(Change("created", stored, None) for stored in page.items)
            yield
            while (changes := await cursor.next()) is not None:
                await self._note(changes)
                yield

    async def _note(self, changes: Iterable[Change]) -> None:
        for change in changes:
            namespace, name = change.key.split("/")[-2:]
            if change.type == "deleted":
                self._budgets.get(namespace, {}).pop(name, None)
                self._due.pop((namespace, name), None)
                continue
            self._budgets.setdefault(namespace, {})[name] = decode(self._resource, change.current)
            await self._sync((namespace, name))

    async def _follow_pods(self) -> AsyncIterator[None]:
        storage, prefix = self._environment.storage, self._pods.storage_prefix()
        with closing(storage.watch(prefix, storage.revision())) as cursor:
            await self._sync_all()
            yield
            while (changes := await cursor.next()) is not None:
                for key in self._concerned(changes):
                    await self._sync(key)
                yield

    def _concerned(self, changes: Sequence[Change]) -> list[_Key]:
        """The budgets that select a changed pod, as it is or as it was."""
        found: dict[_Key, None] = {}
        for change in changes:
            namespace = change.key.split("/")[-2]
            for name, budget in self._budgets.get(namespace, {}).items():
                states = [state for state in (change.current, change.previous) if state is not None]
                if any(self._selects(budget, state) for state in states):
                    found[namespace, name] = None
        return list(found)

    def _selects(self, budget: Document, stored: Stored) -> bool:
        labels: Mapping[str, str] = self._environment.facts.labels(stored)
        return selects(budget, labels)

    async def _recheck(self) -> AsyncIterator[None]:
        clock = self._environment.clock
        while True:
            await clock.sleep(_RECHECK_SECONDS)
            for key in [key for key, due in self._due.items() if due <= clock.monotonic()]:
                await self._sync(key)
            yield

    async def _sync_all(self) -> None:
        for key in [(namespace, name) for namespace, budgets in self._budgets.items() for name in budgets]:
            await self._sync(key)

    async def _sync(self, key: _Key) -> None:
        namespace, name = key
        self._due.pop(key, None)
        target = Target(self._resource, namespace, name, "status")
        clock = self._environment.clock
        try:
            stored = await modify(self._environment, target, self._with_status)
        except (ApiError, WriteFailed, OutcomeUnknown) as error:
            if isinstance(error, ApiError) and error.code == 404:
                return
            # An admission webhook, or a store that cannot write now.
            _LOG.warning("status of PodDisruptionBudget %s/%s: %s", namespace, name, error)
            self._due[key] = clock.monotonic() + _RETRY_SECONDS
            return
        except Exception:
            # One budget or pod that cannot be read must not keep the other budgets from being current.
            _LOG.exception("status of PodDisruptionBudget %s/%s", namespace, name)
            self._due[key] = clock.monotonic() + _RETRY_SECONDS
            return
        wait = recheck_after(decode(self._resource, stored)["status"], clock.now())
        if wait is not None:
            self._due[key] = clock.monotonic() + max(0.0, wait.total_seconds())

    def _with_status(self, budget: Document) -> Document:
        prefix = self._pods.storage_prefix(budget["metadata"]["namespace"])
        pods = [
            decode(self._pods, stored)
            for stored in self._environment.storage.list(prefix).items
            if self._selects(budget, stored)
        ]
        status = budget_status(budget, pods, self._replicas, self._environment.clock.now())
        return {**copied(budget), "status": status}
