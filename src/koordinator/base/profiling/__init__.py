"""Profiles of a running program in the format of pprof, so that the tools for Go programs read them."""
