"""Mutating and validating admission webhooks, called as the real server calls them.

The rules, the order of calls, the AdmissionReview on the wire and the wording of every refusal are those of
kube-apiserver v1.35, so that a webhook server that is written against one works with the other.
"""
