"""LoadAwareScheduling: keeps pods off nodes whose measured plus expected load is high, and spreads pods by load."""
