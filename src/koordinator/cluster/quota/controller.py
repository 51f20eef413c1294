"""Enforces ResourceQuotas at creation, follows what they count, and keeps their status."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Final

from koordinator.api.document import Document, copied
from koordinator.cluster.errors import ApiError, forbidden
from koordinator.cluster.quota.ledger import NamespaceLedger
from koordinator.cluster.quota.usage import kind_of, printed, usage_of
from koordinator.cluster.resource import Resource
from koordinator.cluster.storage.interface import Change, Compacted, Stored
from koordinator.cluster.verbs.encoding import decode
from koordinator.cluster.verbs.environment import Environment
from koordinator.cluster.verbs.modify import modify
from koordinator.cluster.verbs.target import Target

_LOG = logging.getLogger(__name__)
_RETRY_SECONDS: Final = 5.0
_NO_QUOTA: Final[AbstractContextManager[None]] = nullcontext()


class QuotaController:
    """Costs one look into an empty dictionary for each creation while there are no quotas."""

    def __init__(self) -> None:
        self._ledgers: dict[str, NamespaceLedger] = {}
        self._followed: dict[tuple[str, str], asyncio.Task[None]] = {}
        self._changed: dict[tuple[str, str], None] = {}
        """Quotas (namespace, name) whose status is to be written, oldest first."""
        self._wake = asyncio.Event()
        self._environment: Environment | None = None

    def taken(self, target: Target, obj: Document, *, dry_run: bool) -> AbstractContextManager[None]:
        ledger = self._ledgers.get(target.namespace) if target.namespace else None
        if ledger is None or (target.resource.group, target.resource.plural) not in self._followed:
            return _NO_QUOTA
        return self._held(ledger, target, obj, dry_run=dry_run)

    @contextmanager
    def _held(self, ledger: NamespaceLedger, target: Target, obj: Document, *, dry_run: bool) -> Iterator[None]:
        usage = usage_of(target.resource, obj)
        if why := ledger.refusal(usage):
            raise forbidden(target.resource, obj["metadata"]["name"], why)
        if dry_run:
            yield
            return
        ticket = ledger.hold(usage)
        try:
            yield
        finally:
            self._settle(ledger, ticket, target.resource.storage_key(target.namespace, obj["metadata"]["name"]))

    def _settle(self, ledger: NamespaceLedger, ticket: int, key: str) -> None:
        """From the ticket to the stored object, unless that was followed into the store already."""
        assert self._environment is not None
        ledger.count(ticket, None)
        stored = self._environment.storage.get(key)
        if stored is not None and not ledger.has(key):
            self._count(stored.key, stored)

    async def run(self, environment: Environment) -> None:
        """Until it is cancelled."""
        self._environment = environment
        async with asyncio.TaskGroup() as group:
            group.create_task(self._write_status(environment), name="status of resource quotas")
            group.create_task(self._follow_quotas(environment, group), name="resource quotas")

    async def _follow_quotas(self, environment: Environment, group: asyncio.TaskGroup) -> None:
        resource = _quotas(environment)
        page = environment.storage.list(resource.storage_prefix())
        cursor = environment.storage.watch(resource.storage_prefix(), page.revision)
        for stored in page.items:
            self._set(environment, group, stored, decode(resource, stored))
        while (changes := await cursor.next()) is not None:
            for change in changes:
                namespace, name = change.key.split("/")[-2:]
                if change.type == "deleted":
                    self._drop(namespace, name)
                else:
                    self._set(environment, group, change.current, decode(resource, change.current))

    def _set(self, environment: Environment, group: asyncio.TaskGroup, stored: Stored, quota: Document) -> None:
        namespace, name = stored.key.split("/")[-2:]
        ledger = self._ledgers.get(namespace)
        known = ledger.accounts.get(name) if ledger is not None else None
        if ledger is None:
            ledger = self._ledgers[namespace] = NamespaceLedger()
            for kind in self._followed:
                self._recount(environment, kind, namespace)
        if known is None or known.spec != quota["spec"]:
            for kind in sorted({kind_of(each) for each in quota["spec"].get("hard") or {}} - self._followed.keys()):
                self._follow(environment, group, kind)
            ledger.set_quota(name, quota["spec"])
        self._mark(namespace, name)

    def _drop(self, namespace: str, name: str) -> None:
        ledger = self._ledgers.get(namespace)
        if ledger is not None:
            ledger.drop_quota(name)
            if not ledger.accounts:
                del self._ledgers[namespace]

    def _follow(self, environment: Environment, group: asyncio.TaskGroup, kind: tuple[str, str]) -> None:
        """Once followed, a kind stays so: quotas come back."""
        if environment.registry.stored(*kind) is None:
            return  # a custom kind that is not defined yet; counted from the quota's next change on
        task = group.create_task(self._follow_kind(environment, kind), name=f"quota of {kind[1]}")
        self._followed[kind] = task
        for namespace in self._ledgers:
            self._recount(environment, kind, namespace)

    async def _follow_kind(self, environment: Environment, kind: tuple[str, str]) -> None:
        resource = environment.registry.stored(*kind)
        assert resource is not None
        cursor = environment.storage.watch(resource.storage_prefix(), environment.storage.revision())
        while True:
            try:
                changes = await cursor.next()
            except Compacted:
                _LOG.warning("%s changed faster than quotas could follow; counting them anew", kind[1])
                cursor = environment.storage.watch(resource.storage_prefix(), environment.storage.revision())
                self._ledgers.clear()
                for stored in environment.storage.list(_quotas(environment).storage_prefix()).items:
                    self._relearn(environment, stored)
                continue
            if changes is None:
                return
            for change in changes:
                self._note(change)

    def _relearn(self, environment: Environment, stored: Stored) -> None:
        namespace, name = stored.key.split("/")[-2:]
        if namespace not in self._ledgers:
            self._ledgers[namespace] = NamespaceLedger()
            for kind in self._followed:
                self._recount(environment, kind, namespace)
        self._ledgers[namespace].set_quota(name, decode(_quotas(environment), stored)["spec"])
        self._mark(namespace, name)

    def _recount(self, environment: Environment, kind: tuple[str, str], namespace: str) -> None:
        resource = environment.registry.stored(*kind)
        if resource is not None:
            for stored in environment.storage.list(resource.storage_prefix(namespace)).items:
                self._count(stored.key, stored)

    def _note(self, change: Change) -> None:
        self._count(change.key, None if change.type == "deleted" else change.current)

    def _count(self, key: str, stored: Stored | None) -> None:
        assert self._environment is not None
        group, plural, namespace = key.split("/")[1:4]
        ledger = self._ledgers.get(namespace)
        resource = self._environment.registry.stored("" if group == "core" else group, plural)
        if ledger is None or resource is None:
            return
        usage = None if stored is None else usage_of(resource, decode(resource, stored))
        for name in ledger.count(key, usage):
            self._mark(namespace, name)

    def _mark(self, namespace: str, name: str) -> None:
        self._changed[namespace, name] = None
        self._wake.set()

    async def _write_status(self, environment: Environment) -> None:
        resource = _quotas(environment)
        while True:
            await self._wake.wait()
            self._wake.clear()
            failed = []
            while self._changed:
                namespace, name = next(iter(self._changed))
                del self._changed[namespace, name]
                try:
                    await modify(environment, Target(resource, namespace, name, "status"), self._with_status)
                except ApiError as error:
                    if error.code != 404:
                        # An admission webhook, or a store that cannot write now.
                        _LOG.warning("status of ResourceQuota %s/%s: %s", namespace, name, error)
                        failed.append((namespace, name))
            if failed:
                await environment.clock.sleep(_RETRY_SECONDS)
                for namespace, name in failed:
                    self._mark(namespace, name)

    def _with_status(self, quota: Document) -> Document:
        ledger = self._ledgers.get(quota["metadata"]["namespace"])
        account = ledger.accounts.get(quota["metadata"]["name"]) if ledger is not None else None
        if account is None:
            return quota
        used = {name: printed(name, amount) for name, amount in sorted(account.used.items())}
        return {**copied(quota), "status": {"hard": copied(quota["spec"].get("hard") or {}), "used": used}}


def _quotas(environment: Environment) -> Resource:
    resource = environment.registry.stored("", "resourcequotas")
    assert resource is not None
    return resource
