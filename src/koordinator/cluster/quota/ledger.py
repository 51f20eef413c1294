"""What the objects of one namespace count, kept as they come and go, so that a check costs no look at the store."""

from __future__ import annotations

from dataclasses import dataclass, field

from koordinator.api.document import Document
from koordinator.api.quantity import Quantity
from koordinator.cluster.quota.usage import Amounts, Usage, covers, listed


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

    def has(self, key: str) -> bool:
        return key in self._usages

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
