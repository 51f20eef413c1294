"""The feature gates of Reservation. They are a separate module for the command line, which loads no plugin."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

OMIT_NODE_LABELS: Final = "OmitNodeLabelsForReservation"
GATES: Final[Mapping[str, str]] = {
    OMIT_NODE_LABELS: "the reservation affinity of a pod is compared with the labels of Reservations alone, not with "
    "those of their nodes",
}
"""Name -> what it does."""
