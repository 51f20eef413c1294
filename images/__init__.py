"""The container images of the programs: what is in them, and how they are built. docs/container-images.md."""
