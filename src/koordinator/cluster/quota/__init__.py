"""ResourceQuotas: what each object in a namespace counts, what is refused beyond a quota, and the quotas' status."""
