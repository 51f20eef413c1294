"""What may stand in a field, said on the type itself as ``Annotated[int | None, Schema(minimum=0)]``.

Decoding ignores these: an object that is stored must be readable whatever it holds. Validation, defaulting and the
CRD manifests are all derived from them, so that the three cannot disagree. They are not ``msgspec.Meta`` because
msgspec would refuse a bad value while decoding.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Annotated, Any, Final

UNSET: Final = object()
"""No default; None could be one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Schema:
    """What the CRD's schema says of a field, so what an API server enforces.

    ``required``: an object without the field is refused; so we always write it, empty or not.
    ``may_be_empty``: required, but an empty text is as good as any.
    ``schemaless``: any JSON, kept as it is. ``preserve_unknown_fields``: an object with free members.
    ``nullable``: an explicit null is kept. ``atomic``: server-side apply replaces the value as a whole.
    """

    required: bool = False
    may_be_empty: bool = False
    default: Any = UNSET
    minimum: int | None = None
    maximum: int | None = None
    min_length: int | None = None
    max_length: int | None = None
    pattern: str | None = None
    enum: tuple[str, ...] = ()
    min_items: int | None = None
    min_properties: int | None = None
    format: str | None = None
    nullable: bool = False
    atomic: bool = False
    schemaless: bool = False
    preserve_unknown_fields: bool = False

    def merged(self, inner: Schema) -> Schema:
        """This schema, with what only ``inner`` says added."""
        mine = {field.name: getattr(self, field.name) for field in fields(self)}
        for field in fields(self):
            if mine[field.name] == field.default:
                mine[field.name] = getattr(inner, field.name)
        return Schema(**mine)


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """What configuration is refused for before it reaches a CRD, where that is more than the CRD says.

    ``less_than`` and ``greater_than`` name another field of the same struct, which must then be given too.
    """

    minimum: int | None = None
    maximum: int | None = None
    less_than: str = ""
    greater_than: str = ""


NO_SCHEMA: Final = Schema()
NO_ADMISSION: Final = Admission()
ATOMIC: Final = Schema(atomic=True)

Int32 = Annotated[int, Schema(format="int32")]
IntOrString = int | str
RequiredText = Annotated[str, Schema(required=True)]
PresentText = Annotated[str, Schema(required=True, may_be_empty=True)]
"""Required, but an empty text is as good as any."""
AtomicTexts = Annotated[list[str], ATOMIC]
PercentCheckedLate = Annotated[int | None, Admission(minimum=0, maximum=100)]
"""A percentage that only admission checks, not the CRD."""
Percent = Annotated[int | None, Schema(minimum=0, maximum=100), Admission(minimum=0, maximum=100)]
NotNegative = Annotated[int | None, Schema(minimum=0)]
Positive = Annotated[int | None, Schema(minimum=1)]
Switch = Annotated[int | None, Admission(minimum=0, maximum=1)]
"""0 or 1."""
