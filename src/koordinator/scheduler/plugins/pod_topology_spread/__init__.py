"""PodTopologySpread: spreads matching pods evenly over zones, nodes or other domains that node labels define."""
