"""ProjectedWISKI: WISKI on a grid over a few learned functions of many inputs.

[WISKI] Stanton, Maddox, Delbridge, Wilson 2021, Kernel Interpolation for Scalable Online Gaussian
Processes, section 4.3; mathematics as corrected in MATHS 2.5: the projection ascends the predictive
density of each batch, and the interpolation weights of earlier points are fixed.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, Literal, Unpack, cast

import torch
from gpytorch.kernels import Kernel
from torch import Size, Tensor, nn

from bo_stream.base.fitting import FitReport, fit_model
from bo_stream.base.options import CommonOptions, default_kernel
from bo_stream.base.stream import all_or_nothing
from bo_stream.base.streaming_gp import Promises
from bo_stream.base.units import sizes_of
from bo_stream.errors import InputError
from bo_stream.mathematics.grid import Grid, GridState
from bo_stream.mathematics.process import ConditionedProcess, PosteriorProcess, Process
from bo_stream.mathematics.projected import (
    LearnedProjection,
    ProjectedGrid,
    ProjectedKernel,
    gradient_step,
    moved,
)
from bo_stream.mathematics.shapes import Rows
from bo_stream.surrogates.exact import ExactGP
from bo_stream.surrogates.wiski import WISKI

__all__ = ["ProjectedWISKI"]

CLIMB = 100
"""Maximum number of evaluations in which the projection is learned from buffered points."""
LEARNED_FROM = 600
"""Maximum number of points used for the evidence or the predictive density;"""
LOOKED_AT = 300
"""and while starts are compared."""
OTHERS, FIRST_LOOK = 7, 25
"""Number of starts besides the current projection, and evaluations per start."""
TRUST = 3.0
"""Largest change of the logarithm of a hyperparameter while the projection is learned."""


class ProjectedWISKI(WISKI):
    """WISKI on a grid over one to three learned functions (the projection) of any number of inputs.

    While all points are buffered (the first ``opening``), `fit` learns the projection together with
    the hyperparameters, by the evidence of at most 600 points, each time the data have doubled, and
    places all points on the new grid. Afterwards each `observe` first moves the projection one step
    up the predictive density of its batch; steps become shorter with n, and earlier points keep
    their places on the grid. From then on order and batches matter. A first batch larger than the
    buffer trains the projection as `fit` does. The projection is part of the state: fantasies use
    the current one, and several outputs share it.

    Most is learned from the buffered points, so `fit` before the buffer is full.

    If many inputs matter, two or three linear combinations do not represent them. Test RMSE, in
    standard deviations of the outcomes, on one 90/10 split with 2 and 3 functions: .58 and .45 on
    kin8nm, .40 and .40 on elevators. (An exact GP on a learned linear projection: .65 and .47, .42
    and .39; on protein .80.) `NodeWISKI` with 512 nodes, on all inputs: .31 on kin8nm, .38 on
    elevators and .71 on protein.

    Costs are WISKI's on the same number of nodes, at most 10,000, plus O(q m^2 + q^3) for an
    `observe` of q points.

    Args:
        train_X: ``n x d`` raw inputs, any d; ``n = 0`` is allowed.
        train_Y: ``n x m`` raw outcomes.
        train_Yvar: ``n x m`` raw noise variances, or None to learn the noise.
        common: ``bounds`` (needed), ``covar_module`` (a stationary kernel on the projection's
            values, which lie in the unit cube), ``mean_module``, ``likelihood``,
            ``input_transform``, ``outcome_transform``: see `CommonOptions`.
        projection: The number of linear functions, 1 to 3 and at most d; or a module from the unit
            cube of the inputs, ``n x d``, to the unit cube of the grid, ``n x k``, whose parameters
            are learned if they require gradients. (A module is copied; `bo_stream.load` asks for
            it.)
        rate: Largest step of an `observe`, relative to the norm of all parameters of the
            projection. With 0 the projection is fixed once the buffer is full.
        grid_size: Nodes per function: one integer, or one each. Default 100, 30 x 30 or 10 x 10 x
            10. ``"auto"``: refined by `fit`, as for `WISKI`.
        opening: Number of initial points that are buffered.

    Raises:
        InputError: without bounds, or for an invalid projection.
        UnsupportedError: for a non-stationary kernel, or more than 10,000 nodes.
        NoiseError: also for known noise below 1e-12 of the prior variance.

    Example:
        >>> import torch
        >>> X = torch.rand(40, 6, dtype=torch.double)
        >>> bounds = torch.tensor([[0.0] * 6, [1.0] * 6])
        >>> model = ProjectedWISKI(X, X.sum(-1, keepdim=True).sin(), bounds=bounds, projection=1)
        >>> model.observe(X[:5], X[:5].sum(-1, keepdim=True).sin()).num_observed
        45
        >>> model.projected(X).shape
        torch.Size([40, 1])
    """

    promises = Promises(
        order_invariant=False,
        bytes_constant=True,
        updates_without_drift=300,
        multi_output=True,
        additive=True,
    )

    _grid_moves = True

    def __init__(
        self,
        train_X: Tensor,
        train_Y: Tensor,
        train_Yvar: Tensor | None = None,
        *,
        projection: int | nn.Module = 2,
        rate: float = 0.01,
        grid_size: int | Sequence[int] | Literal["auto"] | None = None,
        opening: int = 4096,
        **common: Unpack[CommonOptions],
    ) -> None:
        inputs, outputs = sizes_of(train_X, train_Y)
        if not (isinstance(rate, int | float) and 0.0 <= rate <= 1.0):
            raise InputError("a rate between 0 and 1", repr(rate), "Leave it out for 0.01.")
        self._projection, self.rate = LearnedProjection(projection, inputs), float(rate)
        if common.get("covar_module") is None:
            batch = Size([outputs] if outputs > 1 else [])
            common["covar_module"] = default_kernel(self._projection.outputs, batch)
        super().__init__(
            train_X, train_Y, train_Yvar, grid_size=grid_size, opening=opening, **common
        )

    def projected(self, X: Tensor) -> Tensor:
        """The projection of raw points ``batch x q x d``: ``batch x q x k``, differentiable."""
        return self.grid.place(self.transformed(X))

    def _check_noise(self, X: Tensor, R: Tensor) -> None:
        super()._check_noise(self.grid.place(X), R)

    # -- grid ------------------------------------------------------------------------------------

    @property
    def grid(self) -> ProjectedGrid:
        """The nodes, in the unit cube, with the current projection."""
        return cast(ProjectedGrid, self.state.grid)

    def _box(self) -> Tensor:
        """The unit cube."""
        return self._like.new_tensor([[0.0], [1.0]]).expand(2, self._projection.outputs)

    def _covering(self, grid_size: int | Sequence[int] | None) -> ProjectedGrid:
        nodes = super()._covering(grid_size)
        phi = self._projection.start if self.state is None else self.grid.phi
        low, high = super()._box()
        return ProjectedGrid(
            **{part.name: getattr(nodes, part.name) for part in fields(Grid)},
            projection=self._projection,
            low=tuple(low.tolist()),
            width=tuple((high - low).tolist()),
            phi=phi,
        )

    # -- the projection --------------------------------------------------------------------------

    def _choose_features(self, state: GridState, rows: Rows) -> GridState:
        """Learn the projection from the batch if the buffer is full (MATHS 2.5)."""
        n, grid = self.num_observed, cast(ProjectedGrid, state.grid)
        if not len(grid.phi) or state.holds_all(n + len(rows)):
            return state
        if n == 0:
            grid = replace(grid, phi=self._learned(rows, CLIMB).phi.detach())
        elif self.rate:
            some, process = _thinned(LEARNED_FROM, rows), self.process()
            if isinstance(process, ConditionedProcess):  # as a loaded surrogate would build it
                process = self._build_process(self.state)
            D = (self._noise_scale().unsqueeze(-1) * some.R).expand(some.Y.shape)
            batch = some.X, some.Y, D, self.rate, self.effective_observations
            grid = replace(grid, phi=gradient_step(process, *batch))
        return replace(state, grid=grid)

    def _to_condition(self, process: PosteriorProcess, points: int) -> PosteriorProcess:
        """The last process with the current projection; rows of earlier points stay as they are.

        (Whenever `_choose_features` moves the projection, a posterior has just been computed.)
        """
        if isinstance(process, ConditionedProcess):
            return replace(process, base=moved(cast(Process, process.base), self.grid))
        return moved(process, self.grid)

    def _search(self, max_evals: int | None) -> FitReport:
        """The projection, if that is due and possible, and then the hyperparameters."""
        n, most = self.num_observed, CLIMB if max_evals is None else max_evals
        due = self.state.worth_choosing(n) and n > self.grid.dim
        if due and self._all_buffered and len(self.grid.phi):
            self._learn_projection(most)
        return super()._search(max_evals)

    @all_or_nothing
    def _learn_projection(self, most: int) -> None:
        """Learn projection and hyperparameters from the buffered points; rebuild the sums."""
        state, n = self.state, self.num_observed
        kernel = self._learned(state.buffer[:n], most)
        self._lock.restores(self.parameters())
        self.covar_module.load_state_dict(kernel.base_kernel.state_dict())
        self._place_by(kernel.phi.detach())

    def _hyperparameters_changed(self, saved: Mapping[str, Any] | None = None) -> None:
        """Take over a saved projection too, while all points can be placed by it."""
        phi = None if saved is None else saved.get("stream.state_grid_phi")
        if phi is not None and phi.shape == self.grid.phi.shape and self._all_buffered:
            self._place_by(phi.to(self._like))
        super()._hyperparameters_changed(saved)

    @all_or_nothing
    def _place_by(self, phi: Tensor) -> None:
        """Replace the projection; rebuild the sums."""
        self._replace(state=replace(self.state, grid=replace(self.grid, phi=phi)))
        auto = self.grid_size == "auto"
        grid = self._suited_grid() if auto else self._covering(self.grid.sizes)
        self._replace(state=self.state.chosen(grid, self.num_observed))

    def _learned(self, rows: Rows, most: int) -> ProjectedKernel:
        """The projection of highest evidence of an exact GP with the grid's covariance.

        Several starts are compared, the current projection among them, and the best is continued.
        O(n^3) per evaluation, with at most 600 points.

        Args:
            rows: The buffered points.
            most: Evaluations of the final ascent.

        Returns:
            The kernel, with the projection and its hyperparameters.
        """
        few, data = _thinned(LOOKED_AT, rows), _thinned(LEARNED_FROM, rows)
        others = self._projection.others(OTHERS)
        starts = [replace(self.grid, phi=phi.to(self.grid.phi)) for phi in (self.grid.phi, *others)]
        tried = [
            self._ascended(self.covar_module, start, few, min(most, FIRST_LOOK)) for start in starts
        ]
        best = max(tried, key=lambda found: found[0])[1]
        start = replace(self.grid, phi=best.phi.detach())
        return self._ascended(best.base_kernel, start, data, most)[1]

    def _ascended(
        self, kernel: Kernel, grid: ProjectedGrid, rows: Rows, most: int
    ) -> tuple[float, ProjectedKernel]:
        """The evidence reached by an ascent from a grid's projection, and the result."""
        model = ExactGP(
            rows.X,
            rows.Y.mT,
            rows.R.expand(rows.Y.shape).mT,
            covar_module=ProjectedKernel(copy.deepcopy(kernel), grid),
            mean_module=copy.deepcopy(self.mean_module),
            likelihood=None if self.noise_mode == "known" else copy.deepcopy(self.likelihood),
            input_transform=None,
            outcome_transform=None,
        )
        value = torch.inference_mode(False)(fit_model)(model, most, TRUST).value
        return value, cast(ProjectedKernel, model.covar_module)

    # -- saving ----------------------------------------------------------------------------------

    def _layout(self) -> dict[str, Any]:
        inputs = super()._box().tolist()
        return {**super()._layout(), "inputs": inputs, "projection": self._projection.outputs}

    def _options(self) -> dict[str, Any]:
        return {**super()._options(), "projection": self._projection.option, "rate": self.rate}

    def _sizes(self) -> dict[str, int]:
        return {**super()._sizes(), "f": len(self._projection.start)}


def _thinned(most: int, rows: Rows) -> Rows:
    """At most ``most`` of n points, evenly spaced in order of arrival."""
    n, device = len(rows), rows.X.device
    return rows[torch.linspace(0, n - 1, min(n, most), device=device).round().long()]
