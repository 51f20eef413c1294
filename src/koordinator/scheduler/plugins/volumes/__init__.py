"""The volume plugins: VolumeBinding, VolumeRestrictions, VolumeZone and NodeVolumeLimits, and what they share."""
