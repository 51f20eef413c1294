"""The JSON form of a histogram's checkpoint, which the original's programs use too:

{"referenceTimestamp": "2026-01-01T00:00:00Z", "bucketWeights": {"12": 10000}, "totalWeight": 3.5}
"""

from __future__ import annotations

from koordinator.api.meta import WireStruct
from koordinator.api.timestamps import Time
from koordinator.model.decaying_histogram import Checkpoint


class StoredHistogram(WireStruct):
    """A Checkpoint as JSON. The names of the buckets are their indices."""

    reference_timestamp: Time | None = None
    bucket_weights: dict[str, int] = {}
    total_weight: float = 0.0

    @classmethod
    def of(cls, checkpoint: Checkpoint) -> StoredHistogram:
        return cls(
            reference_timestamp=checkpoint.reference,
            bucket_weights={str(bucket): weight for bucket, weight in checkpoint.weights.items()},
            total_weight=checkpoint.total,
        )

    def checkpoint(self) -> Checkpoint:
        """Raises ValueError without a reference time, or for a bucket that is no number."""
        if self.reference_timestamp is None:
            raise ValueError("referenceTimestamp is missing")
        weights = {int(bucket): weight for bucket, weight in self.bucket_weights.items()}
        return Checkpoint(self.reference_timestamp, weights, self.total_weight)
