"""The ``koord`` command: a whole co-located cluster on one machine."""
