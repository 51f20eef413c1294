"""Structural schemas (apiextensions.k8s.io/v1): what a definition may say, and what it makes of custom resources.

A schema is read into ``Node`` values once, when its definition is served, and compiled from there into closures:
pruning, defaulting, validity, list types and embedded resources are one module each. ``CustomSchema`` holds them
together. The happy path returns yes or no; only a value that fails is walked again, by ``explanation``, for the words
of the real server.
"""
