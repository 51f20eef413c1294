"""InterPodAffinity: pods near pods, and pods away from pods."""
