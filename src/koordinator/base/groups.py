"""Members by group, where no group is empty: indexes from what things have in common to the things."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from types import MappingProxyType
from typing import Any, Final, Generic, TypeVar

Group = TypeVar("Group", bound=Hashable)
Member = TypeVar("Member", bound=Hashable)
Value = TypeVar("Value")

_NO_MEMBERS: Final[Mapping[Any, Any]] = MappingProxyType({})


class Groups(dict[Group, dict[Member, Value]], Generic[Group, Member, Value]):
    """Group -> member -> value. A group is there as long as it has a member."""

    def of(self, group: Group) -> Mapping[Member, Value]:
        """The members of a group with their values; none if it is not there."""
        return self.get(group, _NO_MEMBERS)

    def put(self, group: Group, member: Member, value: Value) -> None:
        """Add the member, or replace its value."""
        if group in self:
            self[group][member] = value
        else:
            self[group] = {member: value}

    def take(self, group: Group, member: Member) -> Value | None:
        """Remove the member. Returns its value; None if it was not there."""
        if group not in self or member not in self[group]:
            return None
        members = self[group]
        value = members[member]
        del members[member]
        if not members:
            del self[group]
        return value


class Counts(Groups[Group, Member, int]):
    """Group -> member -> how many there are of it, never 0."""

    def add(self, group: Group, member: Member, more: int) -> None:
        """Count so many more of the member; below 0, so many less."""
        count = self.of(group).get(member, 0) + more
        if count:
            self.put(group, member, count)
        else:
            self.take(group, member)
