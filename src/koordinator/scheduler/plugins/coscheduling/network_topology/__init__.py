"""Network-topology-aware gangs: all members are placed in the smallest network domain that can hold them."""
