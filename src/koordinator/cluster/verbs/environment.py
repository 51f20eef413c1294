"""The dependencies of every verb: the store, the served kinds, the clock, randomness and the admission chain."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from datetime import datetime
from random import Random
from typing import TYPE_CHECKING, Literal, Protocol

from koordinator.api.document import Document
from koordinator.base.clock import Clock
from koordinator.cluster.access.identity import ADMIN, User
from koordinator.cluster.managed_fields.field_manager import FieldManager
from koordinator.cluster.resource import Registry, RequestContext, Resource
from koordinator.cluster.storage.interface import Storage
from koordinator.cluster.verbs.options import DeleteOptions, WriteOptions
from koordinator.cluster.verbs.selection import SelectorCache
from koordinator.cluster.verbs.target import Target, decode, is_namespace, new_uid

if TYPE_CHECKING:
    # Signing takes a library that servers without tokens do not load.
    from koordinator.cluster.service_account_tokens import Claims

# The place between what a client sent and the store where others may change or refuse it.
#
# The plugins of the chain change the object first, then mutating webhooks; the kind prepares and validates what they
# have made of it; then the plugins may refuse it, and last validating webhooks.


Operation = Literal["CREATE", "UPDATE", "DELETE"]
GroupResource = tuple[str, str]
"""Group and plural."""
GroupVersionKind = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class Attributes:
    """One write on its way to the store."""

    operation: Operation
    target: Target
    obj: Document | None
    """What will be written; None for a deletion."""
    old: Document | None
    context: RequestContext
    request: WriteOptions
    delete_options: DeleteOptions | None = None
    body_kind: GroupVersionKind | None = None
    """The kind of ``obj`` where that is not the resource's own: Binding for pods/binding."""

    @property
    def namespace(self) -> str:
        """Empty for what is cluster-scoped; a Namespace counts as being in itself."""
        target = self.target
        if target.resource.namespaced:
            return target.namespace or ""
        return target.name if is_namespace(target.resource) else ""


class Admission(Protocol):
    """Whoever may change or refuse a write; refuses by raising ApiError."""

    async def mutate(self, attributes: Attributes) -> None:
        """Before the kind prepares the object for the store; may change ``attributes.obj`` in place."""
        ...

    async def validate(self, attributes: Attributes) -> None:
        """When the object is as it will be stored."""
        ...


class Webhooks(Admission, Protocol):
    """The caller of admission webhooks; first checked for whether there is anything to call."""

    def mutates(self, attributes: Attributes) -> bool:
        """Whether ``mutate`` might call someone; the object need not be decoded for this."""
        ...


class NoAdmission:
    """Of a server that takes all that is valid."""

    async def mutate(self, attributes: Attributes) -> None: ...

    async def validate(self, attributes: Attributes) -> None: ...


class NoWebhooks(NoAdmission):
    """Of a server that calls none."""

    def mutates(self, attributes: Attributes) -> bool:
        return False


class Quotas(Protocol):
    """Tracks the usage of the quotas."""

    def taken(
        self, target: Target, obj: Document, *, dry_run: bool, old: Document | None = None
    ) -> AbstractContextManager[None]:
        """Holds what ``obj`` counts more than ``old`` while it is stored. Entering raises ApiError 403 when a quota has
        not enough."""
        ...


class TokenIssuer(Protocol):
    """Signs the tokens of ServiceAccounts."""

    def issue(self, claims: Claims) -> str: ...


class NoQuotas:
    """Of a server that enforces none."""

    def taken(
        self, target: Target, obj: Document, *, dry_run: bool, old: Document | None = None
    ) -> AbstractContextManager[None]:
        return nullcontext()


Allocate = Callable[[Document], None]
"""Gives a Service that is about to be stored what it lacks. Raises ApiError."""


def allocate_nothing(obj: Document) -> None:
    """Of all other kinds."""


class Addresses(Protocol):
    """Gives Services their cluster IPs and node ports."""

    def holding(self, target: Target) -> AbstractContextManager[Allocate]:
        """What the function in the block has given is held until the end of the block."""
        ...


class NoAddresses:
    """Of a server that takes Services as they are."""

    def holding(self, target: Target) -> AbstractContextManager[Allocate]:
        return nullcontext(allocate_nothing)


_NAME_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
"""Without vowels and look-alikes, as the real server's generated names."""


def random_suffix(random: Random) -> str:
    """What is added to a base to make a name."""
    return "".join(random.choices(_NAME_ALPHABET, k=5))


@dataclass(frozen=True, slots=True)
class Environment:
    """One per server."""

    storage: Storage
    registry: Registry
    clock: Clock
    random: Random
    admission: Admission = field(default_factory=NoAdmission)
    """The plugins that are built in: ``koordinator.cluster.admission``."""
    webhooks: Webhooks = field(default_factory=NoWebhooks)
    selector_cache: SelectorCache = field(default_factory=SelectorCache)
    quotas: Quotas = field(default_factory=NoQuotas)
    addresses: Addresses = field(default_factory=NoAddresses)
    warns_of_missing_controllers: bool = True
    workload_controllers: bool = False
    """Whether those of ``koord up`` run beside this server."""
    account_tokens: TokenIssuer | None = None
    """None where no tokens are issued."""
    tracks_fields: bool = False
    """Whether objects say who has set which field, which server-side apply needs."""

    def context(self, warnings: list[str], user: User = ADMIN) -> RequestContext:
        """``warnings`` collects the warnings of the response."""
        return RequestContext(self.clock.now(), self.lookup, self.list_objects, user, warnings)

    def field_manager(self, resource: Resource, options: WriteOptions, subresource: str = "") -> FieldManager | None:
        """Of one request; None where fields are not tracked."""
        if not self.tracks_fields:
            return None
        return FieldManager(self.registry, resource, subresource, options.manager, timestamp(self.clock.now()))

    def lookup(self, group: str, plural: str, namespace: str | None, name: str) -> Document | None:
        resource = self.registry.stored(group, plural)
        if resource is None:
            return None
        stored = self.storage.get(resource.storage_key(namespace, name))
        return None if stored is None else decode(resource, stored)

    def list_objects(self, group: str, plural: str, namespace: str | None = None) -> Sequence[Document]:
        resource = self.registry.stored(group, plural)
        if resource is None:
            return []
        return [decode(resource, stored) for stored in self.storage.list(resource.storage_prefix(namespace)).items]

    def new_uid(self) -> str:
        return new_uid(self.random)

    def name_suffix(self) -> str:
        return random_suffix(self.random)


def timestamp(moment: datetime) -> str:
    """metav1.Time of a moment in UTC: whole seconds."""
    return moment.isoformat()[:19] + "Z"
