"""Action policies of the computation-aware GP: the subspace of the data that it uses."""

from bo_stream.actions.policies import (
    Actions,
    BlockSparse,
    ConjugateGradient,
    Identity,
    TopEigenvectors,
)

__all__ = [
    "Actions",
    "BlockSparse",
    "ConjugateGradient",
    "Identity",
    "TopEigenvectors",
]
