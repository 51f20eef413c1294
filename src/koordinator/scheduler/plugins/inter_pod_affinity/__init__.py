"""InterPodAffinity: affinity and anti-affinity between pods."""
