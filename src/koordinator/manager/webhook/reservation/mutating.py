"""``/mutate-reservation``: a Reservation becomes what the profiles make of the pods that it is for.

Profiles choose Reservations by their labels. Capacity is reserved in the amounts that the template names: nothing is
translated.
"""

from __future__ import annotations

from koordinator.api.document import copied
from koordinator.manager.webhook.admission import ALLOWED, AdmissionAnswer, AdmissionRequest, content
from koordinator.manager.webhook.colocation_profile.catalogue import ProfileCatalogue
from koordinator.manager.webhook.colocation_profile.cluster import ColocationCluster
from koordinator.manager.webhook.colocation_profile.engine import Draw, ProfileEngine
from koordinator.manager.webhook.reservation.document import reservation_type, template_pod_spec
from koordinator.manager.webhook.steps import UNMEASURED, Steps


class ReservationMutatingHandler:
    """Changes Reservations when they are created; updates pass as they are."""

    path = "/mutate-reservation"

    def __init__(self, cluster: ColocationCluster, draw: Draw, steps: Steps = UNMEASURED) -> None:
        self._catalogue = ProfileCatalogue(cluster, reservation_type())
        self._engine = ProfileEngine(cluster, draw, template_pod_spec)
        self._steps = steps

    def handle(self, request: AdmissionRequest) -> AdmissionAnswer:
        """Raises ProfileError where a profile that matches cannot be applied, DecodeError without a Reservation."""
        if request.resource != "reservations" or request.sub_resource or request.operation != "CREATE":
            return ALLOWED
        reservation = content(request.object)
        with self._steps.step(request.operation, "ClusterColocationProfile"):
            labels = (reservation.get("metadata") or {}).get("labels") or {}
            matches = self._catalogue.for_cluster_object(labels)
            changed = self._engine.apply(matches, copied(reservation))
        return AdmissionAnswer(changed=changed if changed != reservation else None, warnings=matches.warnings)
