"""The only writer of the kernel's files: features submit wishes, it decides which win, writes and explains them."""
