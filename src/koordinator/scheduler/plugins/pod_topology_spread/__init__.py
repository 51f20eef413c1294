"""PodTopologySpread: like pods are spread evenly over zones, nodes or any other domains that node labels define."""
