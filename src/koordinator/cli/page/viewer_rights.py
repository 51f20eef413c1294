"""What somebody may see on the page of a cluster, as the API server says in answer to the viewer's own token.

Of a table whose rows are of one kind of object, whoever may not list them all may still list those of some namespaces.
An API server has no question for that but one for each namespace. So a part of the namespaces is asked about each time:
those in which the viewer may, those that are new, and of the others those that were asked about longest ago. All
viewers together have a number of questions a second, so that the API server has time for others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from koordinator.api.kinds import SELF_SUBJECT_ACCESS_REVIEWS, SERVICE_ACCOUNTS, Kind
from koordinator.api.reviews import (
    NonResourceAttributes,
    ResourceAttributes,
    SelfSubjectAccessReview,
    SelfSubjectAccessReviewSpec,
)
from koordinator.cli.explain_source import ACCOUNT
from koordinator.cli.page.board import Sight
from koordinator.cli.page.feed import READS
from koordinator.kube.interface import Client
from koordinator.kube.sender import RateLimiter

NAMESPACES_AT_ONCE: Final = 200
_AT_ONCE: Final = 10
_FOR_ALL: Final = ("contact",)
"""Tables with nothing of what is in the cluster."""
_BY_PROGRAMS: Final = ("gangs", "audit")
"""Tables that the programs know: they answer whoever may have a token of the account koord-explain."""
_NOTHING: Final = Sight(everywhere=False, lacks="this is not shown to those who sign in")


@dataclass(frozen=True, slots=True)
class Rights:
    """What somebody may see, by table. Equal rights are equal, so that what they see is made once."""

    sights: tuple[tuple[str, Sight], ...]

    def __call__(self, table: str) -> Sight:
        return dict(self.sights).get(table, _NOTHING)


class RightsReader:
    """Reads the rights of one viewer, again and again; ``client`` has the viewer's token. ``programs`` is the namespace
    of the programs, ``limiter`` that of all viewers."""

    def __init__(self, client: Client, programs: str, limiter: RateLimiter) -> None:
        self._client = client
        self._programs = ResourceAttributes(
            verb="create", resource=SERVICE_ACCOUNTS.plural, subresource="token", namespace=programs, name=ACCOUNT
        )
        self._limiter = limiter
        self._slots = asyncio.Semaphore(_AT_ONCE)
        self._namespaces: dict[str, _Namespaces] = {}
        """By kind."""

    async def read(self, namespaces: Iterable[str]) -> Rights:
        """Of each table; ``namespaces`` are those that there are now. Raises KubeError."""
        # Alone, so that somebody whom the API server does not know costs it one question.
        asks = await self._may(self._programs)
        kinds = {kind.plural: kind for each in READS.values() for kind in each}
        everywhere = dict(zip(kinds, await asyncio.gather(*map(self._may_list, kinds.values())), strict=True))
        names = frozenset(namespaces)
        sights = {table: await self._sight(read, everywhere, names) for table, read in READS.items()}
        lacks = "" if asks else f"you lack the right to {_words(self._programs)}, in whose name the programs are asked"
        sights |= dict.fromkeys(_BY_PROGRAMS, Sight(everywhere=asks, lacks=lacks))
        sights |= dict.fromkeys(_FOR_ALL, Sight())
        return Rights(tuple(sorted(sights.items())))

    async def may_get(self, path: str, verb: str) -> bool:
        """Whether the viewer may do that with a path of a program. Raises KubeError."""
        return await self._may(NonResourceAttributes(path=path, verb=verb))

    async def _sight(self, kinds: Sequence[Kind[Any]], everywhere: dict[str, bool], names: frozenset[str]) -> Sight:
        """All, where all of the kinds may be listed; else some namespaces, where the rows are of one kind of object."""
        missing = [kind for kind in kinds if not everywhere[kind.plural]]
        if not missing:
            return Sight()
        lacks = f"you lack the right to {' and to '.join(_words(_list_of(kind)) for kind in missing)}"
        if len(kinds) > 1 or not kinds[0].namespaced:
            return Sight(everywhere=False, lacks=lacks)
        known = self._namespaces.setdefault(kinds[0].plural, _Namespaces())
        asked = known.next(names)
        answers = await asyncio.gather(*(self._may_list(kinds[0], name) for name in asked))
        known.answered(zip(asked, answers, strict=True))
        if unknown := len(names) - len(known):
            lacks += f"; {unknown} namespaces have not been asked about yet"
        return Sight(everywhere=False, namespaces=known.allowed(), lacks=lacks)

    async def _may_list(self, kind: Kind[Any], namespace: str = "") -> bool:
        return await self._may(_list_of(kind, namespace))

    async def _may(self, what: ResourceAttributes | NonResourceAttributes) -> bool:
        spec = (
            SelfSubjectAccessReviewSpec(resource_attributes=what)
            if isinstance(what, ResourceAttributes)
            else SelfSubjectAccessReviewSpec(non_resource_attributes=what)
        )
        async with self._slots:
            await self._limiter.acquire()
            status = (await self._client.create(SELF_SUBJECT_ACCESS_REVIEWS, SelfSubjectAccessReview(spec=spec))).status
        return status.allowed and not status.denied


class _Namespaces:
    """Whether objects of a kind may be listed there, as far as is known; what was asked longest ago comes first."""

    def __init__(self) -> None:
        self._answers: dict[str, bool] = {}

    def __len__(self) -> int:
        return len(self._answers)

    def next(self, names: frozenset[str]) -> list[str]:
        """Those to ask about, of all that there are."""
        for gone in self._answers.keys() - names:
            del self._answers[gone]
        new = sorted(names - self._answers.keys())
        denied = [name for name, allowed in self._answers.items() if not allowed]
        return [*self.allowed(), *[*new, *denied][:NAMESPACES_AT_ONCE]]

    def answered(self, answers: Iterable[tuple[str, bool]]) -> None:
        for name, allowed in answers:
            self._answers.pop(name, None)
            self._answers[name] = allowed

    def allowed(self) -> frozenset[str]:
        return frozenset(name for name, allowed in self._answers.items() if allowed)


def _list_of(kind: Kind[Any], namespace: str = "") -> ResourceAttributes:
    return ResourceAttributes(verb="list", group=kind.group, resource=kind.plural, namespace=namespace)


def _words(what: ResourceAttributes) -> str:
    """``list nodemetrics.slo.koordinator.sh``."""
    resource = f"{what.resource}.{what.group}" if what.group else what.resource
    resource += f"/{what.subresource}" if what.subresource else ""
    name = f" of {what.namespace}/{what.name}" if what.name else ""
    return f"{what.verb} {resource}{name}"
