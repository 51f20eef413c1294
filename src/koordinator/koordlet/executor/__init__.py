"""The one arbiter of the kernel's files: features wish, it decides, writes and accounts for what it wrote."""
