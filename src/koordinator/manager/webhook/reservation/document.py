"""The type of a Reservation as far as patches need it: where its lists merge by key.

The Go type marks no list of its own, but holds a pod template and metadata, whose lists merge as they do in a pod.
"""

from __future__ import annotations

from functools import cache
from typing import Final

from koordinator.api.document import Document
from koordinator.api.kubernetes_types.table import Field, ObjectType, Shape, Type
from koordinator.manager.webhook.colocation_profile.changes import section

_METADATA: Final = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
_POD_TEMPLATE: Final = "io.k8s.api.core.v1.PodTemplateSpec"


@cache
def reservation_type() -> ObjectType:
    spec = ObjectType("ReservationSpec", {"template": _field("template", Type(Shape.OBJECT, _POD_TEMPLATE))}, {})
    fields = {
        "metadata": _field("metadata", Type(Shape.OBJECT, _METADATA)),
        "spec": _field("spec", Type(Shape.OBJECT, spec.name, declared=spec)),
    }
    return ObjectType("Reservation", fields, {})


def template_pod_spec(reservation: Document) -> Document | None:
    """The spec of the pods that capacity is reserved for; None without a template."""
    template = (reservation.get("spec") or {}).get("template")
    return section(template, "spec") if isinstance(template, dict) else None


def _field(name: str, of: Type) -> Field:
    return Field(name, of, pointer=True, omit_empty=True)
