"""The only writer of the kernel's files: features submit settings, it decides which win, writes and explains them."""
