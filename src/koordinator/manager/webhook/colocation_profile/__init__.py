"""ClusterColocationProfiles at work: which of them match an object, and what they change in it."""
