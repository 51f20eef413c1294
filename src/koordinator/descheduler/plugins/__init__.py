"""The plugins that decide: pure functions of a snapshot."""
