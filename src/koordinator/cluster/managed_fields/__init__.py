"""Who set which field: server-side apply and ``metadata.managedFields``, pure; the verbs call ``field_manager``.

The algorithms are those of structured-merge-diff and of apimachinery's ``managedfields``, which kube-apiserver uses.
"""
