"""``/mutate-reservation``: applies profiles to a Reservation as to the pods that it is for.

Profiles select Reservations by their labels. Capacity is reserved in the resources that the template names: nothing is
translated. The Go type marks no merge key of its own, but contains a pod template and metadata, whose lists merge as in
a pod.
"""

from __future__ import annotations

from functools import cache
from typing import Final

from koordinator.api.codec import convert
from koordinator.api.document import Document, copied
from koordinator.api.kubernetes_types.table import Field, ObjectType, Shape, Type
from koordinator.api.meta import ObjectMeta
from koordinator.manager.webhook.admission import (
    ALLOWED,
    UNMEASURED,
    AdmissionRequest,
    AdmissionResponse,
    Steps,
    content,
)
from koordinator.manager.webhook.colocation_profile.changes import ColocationCluster, section
from koordinator.manager.webhook.colocation_profile.engine import Draw, ProfileCatalogue, ProfileEngine

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
    """The PodSpec of the template; None without a template."""
    spec = reservation.get("spec")
    template = spec.get("template") if isinstance(spec, dict) else None
    return section(template, "spec") if isinstance(template, dict) else None


def _field(name: str, of: Type) -> Field:
    return Field(name, of, pointer=True, omit_empty=True)


class ReservationMutatingHandler:
    """Mutates Reservations when they are created; updates pass unchanged."""

    path = "/mutate-reservation"

    def __init__(self, cluster: ColocationCluster, draw: Draw, steps: Steps = UNMEASURED) -> None:
        self._catalogue = ProfileCatalogue(cluster, reservation_type())
        self._engine = ProfileEngine(cluster, draw, template_pod_spec)
        self._steps = steps

    def handle(self, request: AdmissionRequest) -> AdmissionResponse:
        """Raises ProfileError where a matching profile cannot be applied, DecodeError for what is no Reservation."""
        if request.resource != "reservations" or request.sub_resource or request.operation != "CREATE":
            return ALLOWED
        reservation = content(request.object)
        with self._steps.step(request.operation, "ClusterColocationProfile"):
            metadata = convert(reservation.get("metadata") or {}, ObjectMeta)
            matches = self._catalogue.for_cluster_object(metadata.labels)
            changed = self._engine.apply(self._engine.drawn(matches), copied(reservation))
        return AdmissionResponse(changed=changed if changed != reservation else None, warnings=matches.warnings)
