"""Enforces ResourceQuotas at creation, follows what they count, and keeps their status."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from koordinator.api.document import Document, copied
from koordinator.api.quantity import Quantity
from koordinator.cluster.background import LoopBody
from koordinator.cluster.errors import ApiError, forbidden
from koordinator.cluster.quota.usage import Amounts, Usage, covers, growth, kind_of, listed, printed, usage_of
from koordinator.cluster.resource import Resource
from koordinator.cluster.storage.interface import Change, OutcomeUnknown, Stored, WriteFailed
from koordinator.cluster.verbs.environment import Environment
from koordinator.cluster.verbs.options import CONTROLLER_MANAGER, WriteOptions
from koordinator.cluster.verbs.target import Target, decode
from koordinator.cluster.verbs.update import modify

# What the objects of one namespace count, kept as they come and go, so that a check costs no look at the store.


@dataclass(slots=True)
class QuotaAccount:
    """One ResourceQuota and the sums of what it covers."""

    spec: Document
    hard: Amounts
    used: Amounts = field(default_factory=dict)

    @classmethod
    def of(cls, spec: Document) -> QuotaAccount:
        hard = {name: Quantity.parse(amount).nanos for name, amount in (spec.get("hard") or {}).items()}
        return cls(spec, hard, dict.fromkeys(hard, 0))

    def add(self, usage: Usage, sign: int) -> bool:
        """Whether anything that the quota limits has changed."""
        counted = usage.amounts.keys() & self.hard.keys()
        if not counted or not covers(self.spec, usage):
            return False
        for name in counted:
            self.used[name] += sign * usage.amounts[name]
        return True

    def refusal(self, name: str, usage: Usage) -> str:
        """Why an object may not be created, in the real server's words; empty when it may."""
        counted = usage.amounts.keys() & self.hard.keys()
        if usage.kind == ("", "pods"):
            counted |= usage.unspecified.keys() & self.hard.keys()
        if not counted or not covers(self.spec, usage):
            return ""
        if missing := sorted(usage.unspecified.keys() & self.hard.keys()):
            parts = [f"{each} for: {','.join(sorted(usage.unspecified[each]))}" for each in missing]
            return f"failed quota: {name}: must specify {'; '.join(parts)}"
        exceeded = [
            each
            for each in counted
            if usage.amounts.get(each, 0) > 0 and self.used[each] + usage.amounts[each] > self.hard[each]
        ]
        if not exceeded:
            return ""
        return (
            f"exceeded quota: {name}, requested: {listed(usage.amounts, exceeded)}, "
            f"used: {listed(self.used, exceeded)}, limited: {listed(self.hard, exceeded)}"
        )


class NamespaceLedger:
    """The quotas of a namespace and the usage of each object by its storage key.

    An object that is on its way into the store is held under a ticket, so that two of them cannot both take the last
    of what there is.
    """

    def __init__(self) -> None:
        self.accounts: dict[str, QuotaAccount] = {}
        self._usages: dict[str | int, Usage] = {}
        self._next_ticket = 0

    def set_quota(self, name: str, spec: Document) -> None:
        account = QuotaAccount.of(spec)
        for usage in self._usages.values():
            account.add(usage, 1)
        self.accounts[name] = account

    def drop_quota(self, name: str) -> None:
        self.accounts.pop(name, None)

    def refusal(self, usage: Usage) -> str:
        """The first quota's refusal, in the order of names."""
        refusals = (self.accounts[name].refusal(name, usage) for name in sorted(self.accounts))
        return next((text for text in refusals if text), "")

    def hold(self, usage: Usage) -> int:
        """Returns the ticket."""
        self._next_ticket += 1
        self.count(self._next_ticket, usage)
        return self._next_ticket

    def count(self, key: str | int, usage: Usage | None) -> list[str]:
        """An object as it is now, None once it is gone. Returns the quotas whose sums have changed."""
        before = self._usages.pop(key, None)
        if usage is not None:
            self._usages[key] = usage
        if before == usage:
            return []
        return [name for name, account in self.accounts.items() if _replace(account, before, usage)]


def _replace(account: QuotaAccount, before: Usage | None, after: Usage | None) -> bool:
    removed = before is not None and account.add(before, -1)
    added = after is not None and account.add(after, 1)
    return removed or added


_LOG = logging.getLogger(__name__)
_RETRY_SECONDS: Final = 5.0
_NO_QUOTA: Final[AbstractContextManager[None]] = nullcontext()


class QuotaController:
    """Costs one look into an empty dictionary for each creation in a namespace without quotas."""

    def __init__(self) -> None:
        self.limited: dict[str, NamespaceLedger] = {}
        """By namespace."""
        self._watched: set[tuple[str, str]] = set()
        """Kinds (group, plural) that are counted."""
        self._changed: dict[tuple[str, str], None] = {}
        """Quotas (namespace, name) whose status is to be written, oldest first."""
        self._wake = asyncio.Event()
        self._environment: Environment | None = None

    def taken(
        self, target: Target, obj: Document, *, dry_run: bool, old: Document | None = None
    ) -> AbstractContextManager[None]:
        ledger = self.limited.get(target.namespace or "")
        if ledger is None or (target.resource.group, target.resource.plural) not in self._watched:
            return _NO_QUOTA
        usage = usage_of(target.resource, obj)
        if old is not None:
            usage = growth(usage, usage_of(target.resource, old))
        return self._held(ledger, target, obj["metadata"]["name"], usage, dry_run=dry_run)

    @contextmanager
    def _held(
        self, ledger: NamespaceLedger, target: Target, name: str, usage: Usage, *, dry_run: bool
    ) -> Iterator[None]:
        if why := ledger.refusal(usage):
            raise forbidden(target.resource, name, why)
        if dry_run:
            yield
            return
        ticket = ledger.hold(usage)
        try:
            yield
        finally:
            self._commit(ledger, ticket, Target(target.resource, target.namespace, name).key)

    def _commit(self, ledger: NamespaceLedger, ticket: int, key: str) -> None:
        """From the ticket to the object as it is stored now."""
        assert self._environment is not None
        ledger.count(ticket, None)
        stored = self._environment.storage.get(key)
        if stored is not None:
            self._count(stored.key, stored)

    def loops(self, environment: Environment, add_loop: Callable[[str, LoopBody], None]) -> Mapping[str, LoopBody]:
        """Name -> what runs until the store closes; ``add_loop`` takes one more for each kind that a quota counts."""
        self._environment = environment
        self._add_loop = add_loop
        return {
            "resource-quotas": partial(self._watch_quotas, environment),
            "resource-quota-status": partial(self._write_status, environment),
        }

    async def _watch_quotas(self, environment: Environment) -> AsyncIterator[None]:
        resource = _quotas(environment)
        page = environment.storage.list(resource.prefix)
        with closing(environment.storage.watch(resource.prefix, page.revision)) as cursor:
            self.limited.clear()
            for stored in page.items:
                self._set(environment, stored)
            yield
            while (changes := await cursor.next()) is not None:
                for change in changes:
                    if change.type == "deleted":
                        namespace, name = change.key.split("/")[-2:]
                        self._drop(namespace, name)
                    else:
                        self._set(environment, change.current)
                yield

    def _set(self, environment: Environment, stored: Stored) -> None:
        namespace, name = stored.key.split("/")[-2:]
        spec = decode(_quotas(environment), stored)["spec"]
        ledger = self.limited.get(namespace)
        known = ledger.accounts.get(name) if ledger is not None else None
        if ledger is None:
            ledger = self.limited[namespace] = NamespaceLedger()
            for kind in self._watched:
                self._recount(environment, kind, namespace)
        if known is None or known.spec != spec:
            for kind in sorted({kind_of(each) for each in spec.get("hard") or {}} - self._watched):
                self._watch(environment, kind)
            ledger.set_quota(name, spec)
        self._mark(namespace, name)

    def _drop(self, namespace: str, name: str) -> None:
        ledger = self.limited.get(namespace)
        if ledger is not None:
            ledger.drop_quota(name)
            if not ledger.accounts:
                del self.limited[namespace]

    def _watch(self, environment: Environment, kind: tuple[str, str]) -> None:
        """Once followed, a kind stays so: quotas come back."""
        if environment.registry.stored[*kind] is None:
            return  # a custom kind that is not defined yet; counted from the quota's next change on
        self._watched.add(kind)
        for namespace in self.limited:
            self._recount(environment, kind, namespace)
        self._add_loop(f"resource-quota-of-{kind[1]}", partial(self._watch_kind, environment, kind))

    async def _watch_kind(self, environment: Environment, kind: tuple[str, str]) -> AsyncIterator[None]:
        resource = environment.registry.stored[*kind]
        if resource is None:
            return  # a custom kind that is gone with its definition
        prefix = resource.prefix
        with closing(environment.storage.watch(prefix, environment.storage.revision())) as cursor:
            # What happened before the watch began, or while it had fallen behind, is counted anew.
            self.limited.clear()
            for stored in environment.storage.list(_quotas(environment).prefix).items:
                self._set(environment, stored)
            yield
            while (changes := await cursor.next()) is not None:
                for change in changes:
                    self._note(change)
                yield

    def _recount(self, environment: Environment, kind: tuple[str, str], namespace: str) -> None:
        resource = environment.registry.stored[*kind]
        if resource is not None:
            for stored in environment.storage.list(Target(resource, namespace).prefix).items:
                self._count(stored.key, stored)

    def _note(self, change: Change) -> None:
        self._count(change.key, None if change.type == "deleted" else change.current)

    def _count(self, key: str, stored: Stored | None) -> None:
        assert self._environment is not None
        group, plural, namespace = key.split("/")[1:4]
        ledger = self.limited.get(namespace)
        resource = self._environment.registry.stored["" if group == "core" else group, plural]
        if ledger is None or resource is None:
            return
        usage = None if stored is None else usage_of(resource, decode(resource, stored))
        for name in ledger.count(key, usage):
            self._mark(namespace, name)

    def _mark(self, namespace: str, name: str) -> None:
        self._changed[namespace, name] = None
        self._wake.set()

    async def _write_status(self, environment: Environment) -> AsyncIterator[None]:
        resource = _quotas(environment)
        while True:
            await self._wake.wait()
            self._wake.clear()
            failed = []
            while self._changed:
                namespace, name = next(iter(self._changed))
                del self._changed[namespace, name]
                try:
                    await modify(
                        environment,
                        Target(resource, namespace, name, "status"),
                        self._with_status,
                        WriteOptions(user_agent=CONTROLLER_MANAGER),
                    )
                except (ApiError, WriteFailed, OutcomeUnknown) as error:
                    if not isinstance(error, ApiError) or error.code != 404:
                        # An admission webhook, or a store that cannot write now.
                        _LOG.warning("status of ResourceQuota %s/%s: %s", namespace, name, error)
                        failed.append((namespace, name))
            yield
            if failed:
                await environment.clock.sleep(_RETRY_SECONDS)
                for namespace, name in failed:
                    self._mark(namespace, name)

    def _with_status(self, quota: Document) -> Document:
        ledger = self.limited.get(quota["metadata"]["namespace"])
        account = ledger.accounts.get(quota["metadata"]["name"]) if ledger is not None else None
        if account is None:
            return quota
        used = {name: printed(name, amount) for name, amount in sorted(account.used.items())}
        return {**copied(quota), "status": {"hard": copied(quota["spec"].get("hard") or {}), "used": used}}


def _quotas(environment: Environment) -> Resource:
    resource = environment.registry.stored["", "resourcequotas"]
    assert resource is not None
    return resource
