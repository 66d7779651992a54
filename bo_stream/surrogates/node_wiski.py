"""NodeWISKI: WISKI's constant-size statistics on nodes that are data points, in any dimension.

Sums and evidence are WISKI's [WISKI: Stanton, Maddox, Delbridge, Wilson 2021; MATHS 2.2 to 2.4].
Nodes chosen from the data, and weights fixed on arrival, are MATHS 2.8. The algebra is in
`bo_stream.mathematics.nodes`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Unpack, cast

from torch import Tensor

from bo_stream.base.options import CommonOptions, whole_number
from bo_stream.base.streaming_gp import Promises, StreamingGP
from bo_stream.errors import InputError
from bo_stream.mathematics.nodes import (
    NodeState,
    absorb,
    node_evidence,
    node_process,
)
from bo_stream.mathematics.process import PosteriorProcess, Process, unconditioned
from bo_stream.mathematics.shapes import Rows

__all__ = ["NodeWISKI"]


class NodeWISKI(StreamingGP):
    """Gaussian process on up to ``cap`` nodes chosen from the data, for any number of inputs.

    It is exact while n is at most ``cap`` (points redundant to within ``tolerance`` need no node).
    Beyond the cap, a point is replaced by its projection on the nodes, and its residual variance is
    added to its noise. A point that the nodes explain poorly replaces the node that the other nodes
    explain best. Projections are fixed on arrival, under the hyperparameters of that time, and
    depend on the points before, so `fit` before the cap is reached. Hyperparameters, noise and mean
    can be learned again from all data at any time.

    With m nodes: memory O(m^2); evidence with gradient O(m^3); `observe` of q points O(m^3 + q
    m^2), plus O(q m + m^2) for each node that changes; the posterior O(m^3) once, then O(m^2) per
    point. Nothing depends on n. Outputs are independent and share the nodes.

    Args:
        train_X: ``n x d`` raw inputs; ``n = 0`` is allowed.
        train_Y: ``n x m`` raw outcomes.
        train_Yvar: ``n x m`` raw noise variances, or None to learn the noise.
        bounds: Optional ``2 x d`` raw bounds; points outside are refused.
        common: ``covar_module`` (any gpytorch kernel), ``mean_module``, ``likelihood``,
            ``input_transform``, ``outcome_transform``: see `CommonOptions`.
        cap: Maximum number of nodes, at least 2. Only exact conditioning exceeds it.
        tolerance: A point becomes no node if its variance given the nodes is below this fraction
            of its noise variance, or a tenth of this fraction of the prior variance. Larger
            tolerances cost accuracy, and save nothing once the cap is reached. At 0 only
            duplicates are left out.

    Example:
        >>> import torch
        >>> X = torch.rand(40, 5, dtype=torch.double)
        >>> model = NodeWISKI(X, X.sum(-1, keepdim=True), cap=30)
        >>> model.nodes.shape
        torch.Size([30, 5])
        >>> model.posterior(X[:3]).mean.shape
        torch.Size([3, 1])
    """

    promises = Promises(
        order_invariant=False,
        bytes_constant=True,
        updates_without_drift=10_000,
        multi_output=True,
        rebuilds=True,
    )

    conditions_up_to = 64

    def __init__(
        self,
        train_X: Tensor,
        train_Y: Tensor,
        train_Yvar: Tensor | None = None,
        *,
        cap: int = 512,
        tolerance: float = 1e-6,
        **common: Unpack[CommonOptions],
    ) -> None:
        super().__init__(train_X, train_Y, train_Yvar, **common)
        if not 0.0 <= tolerance < 1.0:
            raise InputError("a tolerance from 0 to below 1", f"{tolerance}", "1e-6 is exact.")
        self.cap, self.tolerance = whole_number("cap", cap, 2), float(tolerance)
        self._begin(train_X, train_Y, train_Yvar)

    @property
    def nodes(self) -> Tensor:
        """The nodes, ``m x d``, raw, float64."""
        return self._raw_inputs(self.state.Z)

    # -- state -----------------------------------------------------------------------------------

    def _layout(self) -> dict[str, Any]:
        return {**super()._layout(), "cap": self.cap, "tolerance": self.tolerance}

    def _sizes(self) -> dict[str, int]:
        return {**super()._sizes(), "s": self.num_outputs}

    def _empty_state(self) -> NodeState:
        return NodeState.before_data(self._dim, self.num_outputs)

    def _absorb(self, state: NodeState, rows: Rows) -> NodeState:
        rows = replace(rows, R=rows.R.expand(rows.Y.shape))
        return absorb(state, rows, self._prior().frozen(), cap=self.cap, tolerance=self.tolerance)

    # -- posterior and objective -----------------------------------------------------------------

    def _build_process(self, state: NodeState) -> Process:
        return node_process(state, self._prior().frozen())

    def _to_condition(self, process: PosteriorProcess, points: int) -> PosteriorProcess | None:
        """The last process, if all points since became nodes and none was replaced."""
        base, before = unconditioned(process)
        nodes = cast(Process, base).size + before
        return process if len(self.state.Z) == nodes + points else None

    def _objective(self, profile_mean: bool) -> tuple[Tensor, Tensor | None]:
        """Log evidence with closed-form gradients (MATHS 2.8): O(m^3)."""
        return node_evidence(self.state, self._prior(), profile_mean)
