"""A magnetic field along a walk."""
