"""``koord page``: what the other commands say, in a browser, and kept current."""
