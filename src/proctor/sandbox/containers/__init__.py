"""Containers through an engine's command line: what the sandboxes `docker` and `podman` are made of."""
