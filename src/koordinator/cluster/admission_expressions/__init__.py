"""Expressions in CEL about requests for admission: what they may name, how they are compiled, and what they are given.

Match conditions of webhooks and admission policies share them.
"""
