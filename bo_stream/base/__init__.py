"""The base of every family: construction, observing, BoTorch's interface, state and checks."""
