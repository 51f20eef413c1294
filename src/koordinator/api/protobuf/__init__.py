"""Protocol buffers: the messages of runtime hooks, and the parts of CRI that our programs read or change.

`make protobuf` generates the modules from the `.proto` files. A message keeps fields that it does not know.
"""
