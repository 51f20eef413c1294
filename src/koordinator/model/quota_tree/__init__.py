"""The tree of elastic quotas: who lends to whom, whose pods count where, and what each is guaranteed."""
