"""Coscheduling (gang scheduling): the members of a gang are bound all together, or none of them is."""
