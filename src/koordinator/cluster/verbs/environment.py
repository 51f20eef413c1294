"""The dependencies of every verb, and what create and update share: admission, validation and their order."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from datetime import datetime
from random import Random
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, Protocol, TypeVar

import msgspec

from koordinator.api.document import Document
from koordinator.base.clock import Clock
from koordinator.cluster.access.identity import ADMIN, User
from koordinator.cluster.errors import invalid
from koordinator.cluster.managed_fields.field_manager import MANAGED_FIELDS, FieldManager, keep_readable
from koordinator.cluster.resource import Cause, Registry, RequestContext, Resource
from koordinator.cluster.storage.interface import Storage
from koordinator.cluster.strategy.missing_controllers import Warn, creation_warnings
from koordinator.cluster.verbs.options import DeleteOptions, WriteOptions, manager_of
from koordinator.cluster.verbs.selection import SelectorCache
from koordinator.cluster.verbs.target import StoredObjects, Target, check_namespace, decode, is_namespace, new_uid
from koordinator.model.cel.budget import INLINE, allowance
from koordinator.model.cel.errors import TakesLong

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


class Attributes(msgspec.Struct, frozen=True, eq=False):
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
    def kind(self) -> RequestKind:
        """What the plugins are chosen by."""
        resource = self.target.resource
        return self.operation, resource.group, resource.plural, self.target.subresource, self.target.namespace

    @property
    def namespace(self) -> str:
        """Empty for what is cluster-scoped; a Namespace counts as being in itself."""
        target = self.target
        if target.resource.namespaced:
            return target.namespace or ""
        return target.name if is_namespace(target.resource) else ""


RequestKind = tuple[Operation, str, str, str, str | None]
"""Operation, group, plural, subresource, namespace: what decides which plugins a request concerns."""
Step = Callable[[Attributes], Awaitable[None]]


class Steps(NamedTuple):
    """What the plugins that a request concerns do, in their order; each refuses by raising ApiError."""

    mutate: Sequence[Step] = ()
    """Before the kind prepares the object for the store; may change ``Attributes.obj`` in place."""
    validate: Sequence[Step] = ()
    """When the object is as it will be stored."""


Admission = Mapping[RequestKind, Steps]
"""The plugins that are built in, as it has them for every kind of request."""


class NoAdmission(dict[RequestKind, Steps]):
    """Of a server that takes all that is valid."""

    def __missing__(self, kind: RequestKind) -> Steps:
        return Steps()


async def plugins_mutate(admission: Admission, attributes: Attributes) -> None:
    for step in admission[attributes.kind].mutate:
        await step(attributes)


async def plugins_validate(admission: Admission, attributes: Attributes) -> None:
    for step in admission[attributes.kind].validate:
        await step(attributes)


class Webhooks(Protocol):
    """The caller of admission webhooks; first checked for whether there is anything to call."""

    @property
    def in_force(self) -> Collection[str]:
        """The kinds of configurations and policies of which there are some; without any, nothing is called."""
        ...

    def mutates(self, attributes: Attributes) -> bool:
        """Whether ``mutate`` might call someone; the object need not be decoded for this."""
        ...

    async def mutate(self, attributes: Attributes) -> None:
        """As a step of a plugin, and after those."""
        ...

    async def validate(self, attributes: Attributes) -> None: ...


class NoWebhooks:
    """Of a server that calls none."""

    in_force: Collection[str] = ()

    def mutates(self, attributes: Attributes) -> bool:
        return False

    async def mutate(self, attributes: Attributes) -> None: ...

    async def validate(self, attributes: Attributes) -> None: ...


class Quotas(Protocol):
    """Tracks the usage of the quotas."""

    @property
    def limited(self) -> Collection[str]:
        """The namespaces that have a quota."""
        ...

    def taken(
        self, target: Target, obj: Document, *, dry_run: bool, old: Document | None = None
    ) -> AbstractContextManager[None]:
        """Holds what ``obj`` counts more than ``old`` while it is stored. Entering raises ApiError 403 when a quota has
        not enough."""
        ...


class TokenIssuer(Protocol):
    """Signs the tokens of ServiceAccounts."""

    def issue(self, claims: Claims) -> str: ...

    def key_set(self) -> Document:
        """The JSON Web Key Set with which others check the tokens."""
        ...


Allocate = Callable[[Document], None]
"""Gives a Service that is about to be stored what it lacks. Raises ApiError."""


def allocate_nothing(obj: Document) -> None:
    """Of all other kinds."""


class Addresses(Protocol):
    """Gives Services their cluster IPs and node ports."""

    @property
    def prefix(self) -> str:
        """Where the objects are stored that get some."""
        ...

    def holding(self, target: Target) -> AbstractContextManager[Allocate]:
        """What the function in the block has given is held until the end of the block."""
        ...


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
    quotas: Quotas | None = None
    """None where none are enforced."""
    addresses: Addresses | None = None
    """None where Services stay as they are."""
    creation_warnings: Mapping[GroupResource, Warn] = field(default_factory=creation_warnings)
    """What the creator of an object is told, by its kind."""
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
        manager = options.field_manager or manager_of(options.user_agent)
        return FieldManager(self.registry, resource, subresource, manager, timestamp(self.clock.now()))

    def lookup(self, group: str, plural: str, namespace: str | None, name: str) -> Document | None:
        resource = self.registry.stored[group, plural]
        if resource is None:
            return None
        stored = self.storage.get(Target(resource, namespace, name).key)
        return None if stored is None else decode(resource, stored)

    def list_objects(self, group: str, plural: str, namespace: str | None = None) -> StoredObjects:
        resource = self.registry.stored[group, plural]
        found = () if resource is None else self.storage.list(Target(resource, namespace).prefix).items
        return StoredObjects(resource, found)

    def new_uid(self) -> str:
        return new_uid(self.random)

    def name_suffix(self) -> str:
        return random_suffix(self.random)


def timestamp(moment: datetime) -> str:
    """metav1.Time of a moment in UTC: whole seconds."""
    return moment.isoformat()[:19] + "Z"


# The stages that a new object and a changed one have in common.


async def mutate(
    environment: Environment, attributes: Attributes, decode_anew: Callable[[], None] | None = None
) -> None:
    """Plugins change the decoded object, and webhooks then, before the server adds anything to it. Raises ApiError.

    ``decode_anew`` makes of what webhooks have changed what the verb needs, where that is no whole object."""
    await plugins_mutate(environment.admission, attributes)
    if not environment.webhooks.in_force or not environment.webhooks.mutates(attributes):
        return
    obj, target = attributes.obj, attributes.target
    assert obj is not None
    managers = obj["metadata"].get(MANAGED_FIELDS)
    await environment.webhooks.mutate(attributes)
    if decode_anew is not None:
        decode_anew()
        return
    check_namespace(target, obj)
    target.resource.strategy.decode(obj)
    keep_readable(obj, managers, attributes.request.warnings)


_NOTHING_HELD: Final = nullcontext(allocate_nothing)
_NOT_LIMITED: Final[AbstractContextManager[None]] = nullcontext()


def holding(environment: Environment, target: Target) -> AbstractContextManager[Allocate]:
    """See ``Addresses``."""
    addresses = environment.addresses
    if addresses is None or target.resource.prefix != addresses.prefix:
        return _NOTHING_HELD
    return addresses.holding(target)


def counted(
    environment: Environment, target: Target, obj: Document, old: Document | None = None, *, dry_run: bool
) -> AbstractContextManager[None]:
    """See ``Quotas``."""
    quotas = environment.quotas
    if quotas is None or target.namespace not in quotas.limited:
        return _NOT_LIMITED
    return quotas.taken(target, obj, dry_run=dry_run, old=old)


async def accept(environment: Environment, attributes: Attributes, validate: Validate, allocate: Allocate) -> None:
    """The object, as prepared for the store, gets what it lacks, or is refused: by raising ApiError."""
    obj = attributes.obj
    assert obj is not None
    target = attributes.target
    await check(target.resource, target.name, validate, obj, attributes.old, attributes.context.warnings)
    allocate(obj)
    await review(environment, attributes)


async def review(environment: Environment, attributes: Attributes) -> None:
    """Plugins may refuse what will be stored, or a deletion, and webhooks and policies then: by raising ApiError."""
    await plugins_validate(environment.admission, attributes)
    if environment.webhooks.in_force:
        await environment.webhooks.validate(attributes)


Validate = Callable[[Document, Document | None], list[Cause]]


async def check(
    resource: Resource, name: str, validate: Validate, obj: Document, old: Document | None, warnings: list[str]
) -> None:
    """Raises ApiError 422 for what is wrong; what was wrong before is only warned of."""
    causes = await bounded(lambda: validate(obj, old))
    if not causes:
        return
    warnings.extend(text for cause in causes if cause.tolerated and (text := cause.text) not in warnings)
    if refused := [cause for cause in causes if not cause.tolerated]:
        raise invalid(resource, name, refused)


# Nearly all validation takes microseconds. Rules and policies in CEL are other people's programs: what takes longer
# than a few milliseconds is begun again in a thread. Of those there are few, so that it holds up those alone who also
# have long ones, and they pause, since only one thread of Python runs at a time.


T = TypeVar("T")
_THREADS: Final = 2
_PAUSE_SECONDS: Final = 0.001


class _Threads:
    """Started when they are first needed."""

    def __init__(self) -> None:
        self._executor: ThreadPoolExecutor | None = None

    async def run(self, function: Callable[[], T]) -> T:
        if self._executor is None:
            self._executor = ThreadPoolExecutor(_THREADS, "expressions")
        return await asyncio.get_running_loop().run_in_executor(self._executor, function)


_THREAD: Final = _Threads()


async def bounded(function: Callable[[], T]) -> T:
    """What a function returns that may evaluate expressions; it is called twice when that takes long."""
    try:
        with allowance(INLINE):
            return function()
    except TakesLong:
        return await _THREAD.run(lambda: _patiently(function))


def _patiently(function: Callable[[], T]) -> T:
    """In a thread, which gives way to the loop as often as the loop would have waited for it."""
    with allowance(INLINE, lambda: time.sleep(_PAUSE_SECONDS)):
        return function()
