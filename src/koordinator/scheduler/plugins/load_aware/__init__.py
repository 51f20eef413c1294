"""LoadAwareScheduling: pods stay off nodes whose measured plus expected load is high, and spread by real load."""
