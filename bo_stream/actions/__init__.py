"""Action policies of the computation-aware GP: the subspace of the data that it uses."""

from bo_stream.actions.block_sparse import BlockSparse
from bo_stream.actions.conjugate_gradient import ConjugateGradient
from bo_stream.actions.identity import Identity
from bo_stream.actions.policy import Actions
from bo_stream.actions.top_eigenvectors import TopEigenvectors

__all__ = [
    "Actions",
    "BlockSparse",
    "ConjugateGradient",
    "Identity",
    "TopEigenvectors",
]
