"""ClusterColocationProfiles: which of them match an object, and how they change it."""
