"""What a node offers beyond its own CPU and memory: batch and mid capacity out of what is idle, ratios, devices.

``decide`` looks at a snapshot of one node and answers with a plan that keeps the reasons; ``prepare`` compares a plan
with the node as stored and answers with the patches that are due. Nothing here reads a clock or talks to anyone.
"""
