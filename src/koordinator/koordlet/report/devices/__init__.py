"""The accelerators and network cards of the node, as its Device object has them."""
