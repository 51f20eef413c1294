"""ValidatingAdmissionPolicies at work: which of them a request concerns, and what their expressions say of it."""
