"""Carries out decisions: from the assumed pod to its node, through Permit, PreBind, Bind and evictions."""
