"""Plugins that count resources: NodeResourcesFit and NodeResourcesBalancedAllocation."""
