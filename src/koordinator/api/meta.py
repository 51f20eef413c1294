"""What all objects share: metadata, owner references, selectors, conditions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Final, dataclass_transform

import msgspec

from koordinator.api.constraints import ATOMIC, AtomicTexts, RequiredText, Schema
from koordinator.api.timestamps import Time


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(msgspec.field,))
class _FrozenMeta(msgspec.StructMeta):
    """Declares to type checkers that the structs below are frozen without each having to repeat it."""


class WireStruct(
    msgspec.Struct, metaclass=_FrozenMeta, rename="camel", kw_only=True, omit_defaults=True, gc=False, frozen=True
):
    """Base of all wire types: camelCase names, unknown fields ignored, immutable (informers share them).

    Left out of garbage collection: decoded JSON has no cycles, and a cluster's worth of it would be walked for nothing.
    """


class OwnerReference(WireStruct):
    """The object that another one belongs to."""

    struct_schema: ClassVar[Schema] = ATOMIC

    api_version: RequiredText = ""
    """The API version of the owner."""
    kind: RequiredText = ""
    """The kind of the owner."""
    name: RequiredText = ""
    """The name of the owner."""
    uid: RequiredText = ""
    """The UID of the owner."""
    controller: bool | None = None
    """Whether the owner manages the object."""
    block_owner_deletion: bool | None = None
    """Whether a foreground deletion of the owner waits for this object."""


class ObjectMeta(WireStruct):
    name: str = ""
    generate_name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: Time | None = None
    deletion_timestamp: Time | None = None
    deletion_grace_period_seconds: int | None = None
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    owner_references: Sequence[OwnerReference] = ()
    finalizers: Sequence[str] = ()

    @property
    def key(self) -> str:
        """``namespace/name``, or the name alone for cluster-scoped objects."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


def controller_of(metadata: ObjectMeta) -> OwnerReference | None:
    """The owner that manages the object, if any."""
    for owner in metadata.owner_references:  # Called for every pod of every decision: faster than a generator.
        if owner.controller:
            return owner
    return None


class Object(WireStruct):
    """An object of any kind; enough for what only needs its metadata."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()


class ObjectReference(WireStruct):
    """core/v1 ObjectReference."""

    struct_schema: ClassVar[Schema] = ATOMIC

    api_version: str = ""
    """The API version of the object."""
    kind: str = ""
    """The kind of the object."""
    namespace: str = ""
    """The namespace of the object."""
    name: str = ""
    """The name of the object."""
    uid: str = ""
    """The UID of the object."""
    resource_version: str = ""
    """The version of the object that is meant, if a certain one is."""
    field_path: str = ""
    """The part of the object that is meant, if not all of it."""


class LocalObjectReference(WireStruct):
    name: str = ""


class LabelSelectorRequirement(WireStruct):
    """One requirement on the labels of an object."""

    key: RequiredText = ""
    """The label that it is about."""
    operator: RequiredText = ""
    """In, NotIn, Exists or DoesNotExist."""
    values: AtomicTexts = []
    """The values of In and NotIn; empty for the other operators."""


class LabelSelector(WireStruct):
    """An empty selector matches everything; an absent one (None) nothing."""

    struct_schema: ClassVar[Schema] = ATOMIC

    match_labels: dict[str, str] = {}
    """Labels that must be there with these values."""
    match_expressions: Annotated[list[LabelSelectorRequirement], ATOMIC] = []
    """Further requirements; all of them must hold."""


class Condition(WireStruct):
    """metav1.Condition; also read for the older condition shapes, whose extra fields are ignored."""

    type: Annotated[
        str,
        Schema(
            required=True,
            max_length=316,
            pattern=r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?"
            r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$",
        ),
    ] = ""
    """What the condition is about."""
    status: Annotated[str, Schema(required=True, enum=("True", "False", "Unknown"))] = ""
    """True, False or Unknown."""
    reason: Annotated[
        str,
        Schema(required=True, min_length=1, max_length=1024, pattern=r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$"),
    ] = ""
    """Why the condition is so, as one word for programs."""
    message: Annotated[str, Schema(required=True, may_be_empty=True, max_length=32_768)] = ""
    """Why the condition is so, in words for people."""
    observed_generation: Annotated[int, Schema(minimum=0)] = 0
    """The metadata.generation that the condition was found for."""
    last_transition_time: Annotated[Time | None, Schema(required=True)] = None
    """When the status last changed."""


class ListMeta(WireStruct):
    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")
    remaining_item_count: int | None = None


class StatusCause(WireStruct):
    reason: str = ""
    message: str = ""
    field: str = ""


class StatusDetails(WireStruct):
    name: str = ""
    group: str = ""
    kind: str = ""
    uid: str = ""
    causes: list[StatusCause] = []
    retry_after_seconds: int = 0


class Status(WireStruct):
    """The response of a failed request, and of those that return no object."""

    status: str = ""
    message: str = ""
    reason: str = ""
    details: StatusDetails = StatusDetails()
    code: int = 0


FreeForm = dict[str, Any]
"""A part of an object whose shape is not ours to know."""

EXTENSIONS_MEMBER: Final = "Object"
"""Extensions stand one level deeper than meant, below this: the original's Go tag does not inline them."""
