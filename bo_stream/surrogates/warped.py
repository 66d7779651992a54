"""An exact Gaussian process for small budgets: warped outcomes, noise down to none (MATHS 13).

With a few dozen evaluations, the first fits and the search decide. Outcomes are compressed on the
bad side by a logarithm whose scale is fitted with the kernel, by evidence with analytic gradients.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Literal, Unpack, cast

import numpy as np
import torch
from botorch.models.transforms.outcome import OutcomeTransform
from torch import Tensor

from bo_stream.base import checks
from bo_stream.base.fitting.memory import FitMemory
from bo_stream.base.fitting.report import FitReport
from bo_stream.base.options import CommonOptions
from bo_stream.base.snapshot import Derived, Key
from bo_stream.base.stream import all_or_nothing
from bo_stream.base.streaming_gp import Promises, StreamingGP
from bo_stream.base.units import change_from_saved
from bo_stream.errors import FallbackWarning, InputError, UnsupportedError
from bo_stream.mathematics.process import KernelBasis, Process
from bo_stream.mathematics.warped.evidence import FLOOR, Fitted, contradicted
from bo_stream.mathematics.warped.latent import LatentProcess
from bo_stream.mathematics.warped.schedule import fitted_by_schedule
from bo_stream.mathematics.warped.warp import NO_WARP, OutcomeWarp, log_slopes, unwarped, warped
from bo_stream.surrogates import warped_modules as modules
from bo_stream.surrogates.exact import ExactGP, ExactState
from bo_stream.surrogates.warped_state import WarpedState, rescaled_warp

__all__ = ["WarpedGP"]

NOISES, WARPS = ("learned", "none"), ("log", "none")


class WarpedGP(ExactGP):
    """Exact inference on warped outcomes, for up to a few hundred observations to be maximised.

    `fit` maximises the evidence over lengthscales, noise and the scale of the warp, with mean and
    variance in closed form, and keeps outcomes unwarped where that has the higher evidence. Until
    the first fit, and with ``train_Yvar``, outcomes are not warped. Under a warp `posterior` is a
    `WarpedPosterior` in raw units, and `process` is the latent process. With other modules than the
    family's own, or frozen ones, `fit` is that of every family, and the warp stays as it is.

    Memory O(n^2). A fit of n = 60 points takes milliseconds, O(n^3 + d n^2) an evaluation.

    Args:
        train_X: ``n x d`` raw inputs; ``n = 0`` is allowed.
        train_Y: ``n x 1`` raw outcomes; larger ones are better.
        train_Yvar: ``n x 1`` raw noise variances, or None.
        noise: Without ``train_Yvar``: ``"learned"``, down to 1e-6 of the variance, or ``"none"``
            for evaluations that are exact. If outcomes at one point differ, their noise is learned,
            with a warning.
        warp: ``"log"``, or ``"none"`` for outcomes as they are.
        common: Options of every family; see `CommonOptions`.

    Raises:
        InputError: for unknown options.

    Example:
        >>> import torch
        >>> X = torch.rand(20, 2, dtype=torch.double)
        >>> unit = torch.tensor([[0.0, 0.0], [1.0, 1.0]])
        >>> model = WarpedGP(X, -(X - 0.5).norm(dim=-1, keepdim=True), noise="none", bounds=unit)
        >>> model.fit().converged, model.posterior(X[:3]).mean.shape
        (True, torch.Size([3, 1]))
    """

    promises = Promises(
        order_invariant=True,
        bytes_constant=False,
        updates_without_drift=300,
        multi_output=False,
        keeps_data=True,
    )

    conditions_up_to = 0  # new data may move the warp of all

    def __init__(
        self,
        train_X: Tensor,
        train_Y: Tensor,
        train_Yvar: Tensor | None = None,
        *,
        noise: Literal["learned", "none"] = "learned",
        warp: Literal["log", "none"] = "log",
        **common: Unpack[CommonOptions],
    ) -> None:
        for name, value, known in (("noise", noise, NOISES), ("warp", warp, WARPS)):
            if value not in known:
                raise InputError(f"{name} one of {', '.join(known)}", repr(value), "Choose one.")
        dim, _ = checks.sizes_of(train_X, train_Y, train_Yvar)
        if common.get("covar_module") is None:
            common["covar_module"] = modules.matern_kernel(dim)
        if common.get("likelihood") is None and train_Yvar is None:
            common["likelihood"] = modules.noise_model(learned=noise == "learned")
        StreamingGP.__init__(self, train_X, train_Y, train_Yvar, **common)
        self.noise, self.warp = noise, warp
        self._maps = Derived[OutcomeWarp]()
        self._latents = Derived[LatentProcess]()
        self._begin(train_X, train_Y, train_Yvar)

    # -- state and warp --------------------------------------------------------------------------

    def _empty_state(self) -> WarpedState:
        empty = super()._empty_state()
        return WarpedState(empty.X, empty.Y, empty.R, empty.Y.new_tensor(NO_WARP))

    def _absorb(self, state: ExactState, X: Tensor, Y: Tensor, R: Tensor) -> WarpedState:
        before = cast(WarpedState, state)
        targets = unwarped(Y, before.coefficients) if before.is_warped else Y
        data = super()._absorb(state, X, targets, R)
        return WarpedState(data.X, data.Y, data.R, before.warp).anchored()

    def _targets(self, state: ExactState) -> Tensor:
        now = cast(WarpedState, state)
        return warped(now.Y, now.coefficients) if now.is_warped else now.Y

    @property
    def is_warped(self) -> bool:
        """Whether the last fit chose to warp the outcomes."""
        return cast(WarpedState, self.state).is_warped

    @property
    def outcome_transform(self) -> OutcomeTransform:  # type: ignore[override]
        """How raw outcomes become those of the process, the warp included, as in `outcome_map`.

        BoTorch's lists of models read from it what posteriors their members return.
        """
        found = self.outcome_map()
        if found is None:
            raise AttributeError("This surrogate has no outcome_transform.")
        return found

    def outcome_map(self, *, raw: bool = True) -> OutcomeTransform | None:
        """The transform that the constructor was passed (of raw outcomes), then the warp if there
        is one.
        """
        before = super().outcome_map(raw=raw)
        if not self.is_warped:
            return before
        key = Key(self.stream.version, (), before)
        return self._maps.made(key, lambda: OutcomeWarp(before, self.state.coefficients))

    @property
    def _supports_cache_root(self) -> bool:
        """For BoTorch: whether posteriors are Gaussian."""
        return not self.is_warped

    def units(self) -> tuple[Tensor, Tensor]:
        """Shift and scale of the targets, in which mean and variance have their priors, 0-dim."""
        _, scale, shift, unit = self.state.warp.unbind()
        one = torch.ones_like(unit)
        plain = bool(scale) or not bool(unit)
        return (0.0 * one, one) if plain else (shift, unit)

    # -- posterior -------------------------------------------------------------------------------

    def latent(self) -> LatentProcess:
        """The latent process over transformed inputs in numpy, with slopes in closed form.

        Raises:
            UnsupportedError: for a kernel of one's own, or without observations.
        """
        return self._latents.made(self._key(), self._new_latent)

    def _new_latent(self) -> LatentProcess:
        kernel, state = self.covar_module, cast(WarpedState, self.state)
        if not modules.is_matern(kernel, self._dim) or not len(state.X):
            wanted = "a WarpedGP with its own kernel and at least one observation"
            got = f"{type(kernel).__name__} and {len(state.X)} observations"
            raise UnsupportedError(wanted, got, "Leave covar_module out; observe some data first.")
        lengthscales, variance = modules.kernel_values(kernel)
        noise = self._noise_scale().detach() * state.R[0] / variance
        mean = float(self._prior_mean().detach())
        exact = self.noise == "none" and self.noise_mode == "learned" and bool(noise.max() < FLOOR)
        parts = state.X, self._targets(state)[0], noise
        X, w, relative = (t.detach().numpy(force=True) for t in parts)
        scales = lengthscales.numpy(force=True)
        options: Any = {"exact": exact, "cat_dims": modules.cat_dims_of(kernel)}
        return LatentProcess.given(X, w, relative, scales, mean, variance, **options)

    def _build_process(self, state: ExactState) -> Process:
        """From the latent process, whose factor is there already, where it can be."""
        if not modules.is_matern(self.covar_module, self._dim) or not len(state.X):
            return super()._build_process(state)
        latent, like = self.latent(), self._like
        scale = latent.variance**0.5
        L = scale * torch.from_numpy(latent.lower).to(like)
        whitening = torch.from_numpy(latent.inverse_factor / scale).to(like).mT
        w = (self._targets(state) - latent.mean) @ whitening
        noise = self._noise_scale().detach().unsqueeze(-1) * state.R
        kernel = modules.frozen(self.covar_module).to(like)
        mean = self._prior_mean().detach().clone()
        return Process(kernel, KernelBasis(kernel, state.X, noise), L.unsqueeze(0), None, w, mean)

    def _moments(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """Where it can be, from the latent process alone."""
        if not modules.is_matern(self.covar_module, self._dim) or not self.num_observed:
            return super()._moments(X)
        parts = self.latent().joint(X.detach().numpy(force=True))
        mean, covariance = (torch.from_numpy(part).to(self._like) for part in parts)
        return mean.unsqueeze(0), covariance.unsqueeze(0)

    # -- hyperparameters -------------------------------------------------------------------------

    def named_priors(self, *args: Any, **kwargs: Any) -> Iterator[Any]:
        """Priors of all hyperparameters, including those of mean, variance and relative noise."""
        yield from super().named_priors(*args, **kwargs)
        if self.noise_mode == "learned" and modules.ours(self):
            yield "relative", self, modules.LogDensity(), modules.relative_priors, None

    def _objective(self, profile_mean: bool) -> tuple[Tensor, Tensor | None]:
        """Log evidence of the outcomes before the warp: O(n^3)."""
        value, mean = super()._objective(profile_mean)
        if self.is_warped:
            value = value + log_slopes(self.state.Y, self.state.coefficients)
        return value, mean

    def _search(self, max_evals: int | None) -> FitReport:
        """Hyperparameters and warp, starting from the last fit's: at most 30 iterations from each
        start, or ``max_evals`` evaluations in all.
        """
        if self.num_observed < 2 or self.noise_mode != "learned" or not modules.ours(self):
            return super()._search(max_evals)
        state = cast(WarpedState, self.state)
        X, y = (t.numpy(force=True) for t in (state.X, state.Y[0]))
        memory = self.stream.contents.fits.explored.numpy(force=True)
        learned = self.noise == "learned"
        if not learned and contradicted(X, y):
            text = "Outcomes differ at the same point: they are not exact. Their noise is learned."
            warnings.warn(text, FallbackWarning, stacklevel=3)
            learned = True
        options: Any = {"learned": learned, "warp": self.warp == "log"}
        options |= {"most": max_evals, "cat_dims": modules.cat_dims_of(self.covar_module)}
        found, evaluations, memory = fitted_by_schedule(X, y, memory, **options)
        self._settle(found, memory)
        return FitReport(evaluations, found.value, found.converged)

    @all_or_nothing
    def _hyperparameters_changed(self, saved: Mapping[str, Any] | None = None) -> None:
        """Take over the warp in which loaded hyperparameters were fitted."""
        warp = None if saved is None else saved.get("stream.state_warp")
        if warp is not None and self.warp == "log":
            shift, factor = change_from_saved(self, cast(Any, saved))
            warp = rescaled_warp(warp.to(self._like), shift[0], factor[0])
            self._replace(state=replace(self.state, warp=warp))

    @all_or_nothing
    def _settle(self, found: Fitted, memory: np.ndarray) -> None:
        """Adopt the result of a fit."""
        for parameter in self.parameters():
            self._undo.append(partial(parameter.data.copy_, parameter.detach().clone()))
        state, like = cast(WarpedState, self.state), self._like
        warp = like.new_tensor(found.coefficients)
        shift, scale = (0.0, 1.0) if found.coefficients[1] else found.coefficients[2:]
        variance = found.variance * scale**2
        mean, lengthscales = shift + scale * found.mean, np.exp(found.theta[: self._dim])
        modules.write(self, lengthscales, variance, mean, variance * found.noise)
        fits = FitMemory(FitMemory.empty().curvature.to(like), torch.from_numpy(memory).to(like))
        self._replace(state=replace(state, warp=warp), fits=fits)
