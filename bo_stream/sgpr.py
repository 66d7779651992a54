"""The public door to `predict`, the posterior that growth policies are handed."""

from bo_stream.sparse.posterior import predict

__all__ = ["predict"]
