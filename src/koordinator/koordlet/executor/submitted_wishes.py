"""What each owner has submitted: all of its wishes, or some beside those that it has."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from koordinator.koordlet.executor.wishes import Wish
from koordinator.node.kernel_files import CONTAINER_LIMITS, Target


class SubmittedWishes:
    """``inner`` has, by the folder of a container, the one below in which its runtime keeps the limits once more: what
    is wished for the first of them holds for both."""

    def __init__(self) -> None:
        self.inner: Mapping[str, str] = {}
        self._by_owner: dict[str, tuple[Wish, ...]] = {}

    def replace(self, owner: str, wishes: Iterable[Wish]) -> tuple[Wish, ...] | None:
        """All wishes of the owner; None if they are as they were. ValueError for those of another owner."""
        return self._replace(owner, tuple(self._with_inner(wishes)))

    def _replace(self, owner: str, given: tuple[Wish, ...]) -> tuple[Wish, ...] | None:
        if strangers := {wish.owner for wish in given} - {owner}:
            raise ValueError(f"{owner} submits wishes of {', '.join(sorted(strangers))}")
        if self._by_owner.get(owner, ()) == given:
            return None
        self._by_owner[owner] = given
        return given

    def add(self, owner: str, wishes: Iterable[Wish]) -> tuple[set[Target], tuple[Wish, ...] | None]:
        """The targets of these, and all wishes of the owner as of ``replace``: those for the same targets give way."""
        added = {wish.target: wish for wish in self._with_inner(wishes)}
        kept = (wish for wish in self._by_owner.get(owner, ()) if wish.target not in added)
        return set(added), self._replace(owner, (*kept, *added.values()))

    def _with_inner(self, wishes: Iterable[Wish]) -> Iterable[Wish]:
        return self._doubled(wishes) if self.inner else wishes

    def _doubled(self, wishes: Iterable[Wish]) -> Iterator[Wish]:
        for wish in wishes:
            yield wish
            inner = self.inner.get(wish.target.folder)
            if inner is not None and wish.target.file in CONTAINER_LIMITS:
                yield replace(wish, target=replace(wish.target, folder=inner))
