"""What-if simulation: a snapshot of a cluster, a change, and what the real koord-scheduler then does, all in this
process.

Nothing here writes to a cluster. A snapshot is listed once (``snapshot_reader``) and loaded into the embedded API's
store (``simulated_cluster``); there the programs' own code decides, on a simulated clock.
"""
