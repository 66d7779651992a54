"""Evidence on data nodes for all outputs, with closed-form gradients [MATHS 2.3, 2.4, 2.8]."""

from __future__ import annotations

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from bo_stream.mathematics.data_nodes.prior import node_root
from bo_stream.mathematics.data_nodes.state import NodeState
from bo_stream.mathematics.kernels import cross_kernel
from bo_stream.mathematics.sufficient_statistics.evidence import attach, factorise
from bo_stream.mathematics.sufficient_statistics.roots import DenseRoot

__all__ = ["node_evidence"]


def node_evidence(
    state: NodeState, kernel: Kernel, s2: Tensor, c: Tensor, profile_mean: bool
) -> tuple[Tensor, Tensor]:
    """Log evidence summed over outputs, and the constant means used. O(m^3), whatever n is.

    Args:
        state: The state.
        kernel: The kernel, with or without one batch dimension of the outputs.
        s2: Noise scales, ``o``.
        c: Constant means, counted from the state's origin, ``o``.
        profile_mean: Take the optimal constant means instead.
    """
    outputs = len(s2)
    K = cross_kernel(kernel, state.Z, state.Z).expand(outputs, -1, -1)
    R = node_root(K.detach())
    values, means = [], []
    for i in range(outputs):
        with torch.no_grad():
            stats = state.statistics(i)
            value, grads, own = factorise(DenseRoot(R[i]), stats, s2[i], c[i], profile_mean)
        means.append(own.mean)
        values.append(attach(value, [s2[i], c[i], K[i]], grads))
    return torch.stack(values).sum(), torch.stack(means).detach()
