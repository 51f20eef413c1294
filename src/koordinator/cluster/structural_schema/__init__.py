"""Structural schemas (apiextensions.k8s.io/v1): what a definition may say, and what it makes of custom resources.

A schema is read into ``Node`` values once, when its definition is served, and compiled from there into closures:
pruning, defaulting, validity, list types and embedded resources are one module each. ``CustomSchema`` holds them
together. The happy path asks ``validity`` alone, whether an object is valid and has nothing to be pruned or defaulted;
only one for which that says no is walked again, by ``pruning``, and by ``explanation`` for the words of the real
server.
"""
