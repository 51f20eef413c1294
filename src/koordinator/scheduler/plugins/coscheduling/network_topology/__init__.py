"""Network-topology-aware gangs: all members in the smallest part of the network that can hold them."""
