"""The base of every surrogate: construction, the stream, conditioning, fitting.

A family says four things: its state before any data (`_empty_state`), how the state absorbs a batch
(`_absorb`), what the posterior process is (`_build_process`), and what its hyperparameters climb
(`_objective`). BoTorch's interface is in `bo_stream.base.botorch_model`; how state is held, saved
and kept whole in `bo_stream.base.state`.

The way of an observation: `observe` -> check -> transform -> `_absorb` -> `hold`.

Threads: any number may ask for posteriors beside one that observes or fits; each posterior is that
of one moment, before a change or after it. Only one thread at a time should write, and
`state_dict`, ``deepcopy`` and ``to`` belong to the writer.
"""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Self, Unpack, cast

import torch
from botorch.models.transforms.outcome import Standardize
from botorch.utils.types import DEFAULT
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood
from torch import Size, Tensor

import bo_stream.base.pathwise  # noqa: F401 (registers sample functions with BoTorch)
from bo_stream.base import conditioned
from bo_stream.base.botorch_model import ProcessModel, refuse_unknown
from bo_stream.base.construct_inputs import FromDataset
from bo_stream.base.forgetting import Forgets
from bo_stream.base.gp_model import FittedModel, News
from bo_stream.base.hyperparameter_key import fingerprint
from bo_stream.base.incumbents import Incumbents, KeepsIncumbents
from bo_stream.base.noise import likelihood_for, noise_mode_of
from bo_stream.base.options import (
    CommonOptions,
    constructor_signature,
    default_kernel,
    mean_for,
    with_defaults,
)
from bo_stream.base.promises import Promises
from bo_stream.base.state import Lock, Memo
from bo_stream.base.transforms import (
    bounds_for,
    coefficients,
    input_transform_for,
    outcome_transform_for,
    standardize_by,
)
from bo_stream.base.validation import (
    check_noise,
    check_noise_fits,
    check_targets,
    check_tensors,
    sizes_of,
)
from bo_stream.errors import UnsupportedError
from bo_stream.mathematics.shapes import moved

__all__ = ["Promises", "StreamingGP"]


class StreamingGP(FromDataset, KeepsIncumbents, Forgets, FittedModel):
    """A Gaussian-process surrogate that absorbs data as they come and is a BoTorch model.

    Args:
        train_X: ``n x d`` raw inputs; ``n = 0`` is allowed.
        train_Y: ``n x m`` raw outcomes.
        train_Yvar: ``n x m`` raw noise variances. None: the noise is learned. Given: it is known,
            and with ``likelihood=GaussianLikelihood()`` known up to a learned scale.
        bounds: ``2 x d`` raw bounds, as given to `optimize_acqf`; points outside are refused.
            ``"unit"``: those that ``input_transform`` maps to the unit cube.
        covar_module: A gpytorch kernel (``batch_shape`` ``[m]`` for hyperparameters per output).
        mean_module: `ConstantMean` or `ZeroMean`.
        likelihood: A `GaussianLikelihood`.
        input_transform: Frozen: used as it is in evaluation mode, learned once from ``train_X``
            in training mode. The transform handed over is copied. Left out, inputs are normalised
            to ``bounds`` where these are given; None means none.
        outcome_transform: Likewise, from ``train_Y``. Left out, outcomes are standardised by the
            constructor's data if it has at least two rows, and else taken as they are, with a
            warning; None means none.
        loads_data: Whether `load_state_dict` takes over the data that a saved surrogate has seen.
            False: hyperparameters only, as BoTorch's own models do.

    Raises:
        ShapeError, DtypeError, InputError, NoiseError, BoundsError: on data that do not fit.
        UnsupportedError: on modules or transforms that a stream cannot have.
    """

    promises: ClassVar[Promises]
    _news_kept: int = 0  # points that `_update_process` is told of at most

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "__init__" in vars(cls):
            whole = constructor_signature(cls.__init__)
            own = whole.replace(parameters=list(whole.parameters.values())[1:])
            for seen, signature in ((cls, own), (cls.__init__, whole)):
                setattr(seen, "__signature__", signature)  # noqa: B010

    def __init__(
        self,
        train_X: Tensor,
        train_Y: Tensor,
        train_Yvar: Tensor | None = None,
        **common: Unpack[CommonOptions],
    ) -> None:
        super().__init__()
        options = with_defaults(common, type(self))
        self._dim, self._num_outputs = sizes_of(train_X, train_Y, train_Yvar)
        if self.num_outputs > 1 and not self.promises.multi_output:
            raise UnsupportedError(
                f"one output for {type(self).__name__}",
                f"{self.num_outputs}",
                "Build one surrogate per output and join them in a botorch ModelListGP.",
            )
        bounds = bounds_for(options["bounds"], options["input_transform"], train_X)
        self.register_buffer("bounds", bounds)
        self.register_buffer("_interface", train_X.new_empty(0), persistent=False)
        self._check_batch(train_X, train_Y, train_Yvar, noise_known=train_Yvar is not None)
        inputs = input_transform_for(options["input_transform"], train_X, bounds)
        if inputs is not None:
            self.input_transform = inputs
        self._loads_data = bool(options["loads_data"])
        self._outcomes_left_out = options["outcome_transform"] is DEFAULT
        outcomes = outcome_transform_for(options["outcome_transform"], train_Y, train_Yvar)
        if outcomes is not None:
            self.outcome_transform = outcomes
        batch = Size([self.num_outputs] if self.num_outputs > 1 else [])
        self.noise_mode = noise_mode_of(train_Yvar, options["likelihood"])
        self.covar_module = options["covar_module"] or default_kernel(self._dim, batch)
        self.mean_module = mean_for(options["mean_module"], batch)
        self.likelihood = likelihood_for(self.noise_mode, options["likelihood"], batch)
        self._lock, self._undo, self._forms, self._state = Lock(), [], {}, []
        self._memo: Memo | None = None
        self._news: tuple[News, ...] = ()
        zero = torch.zeros((), dtype=torch.float64)
        self._register_state("_count", zero.long())
        self._register_state("_noise_sum", zero.new_zeros(self.num_outputs))
        self._register_state("_curvature", zero.new_empty(0, 0))
        self._register_state("_explored", zero.new_empty(0))
        self.to(device=train_X.device, dtype=train_X.dtype)

    def _begin(self, train_X: Tensor, train_Y: Tensor, train_Yvar: Tensor | None) -> None:
        """The end of every family's constructor: the empty state, and the first data."""
        self.hold("state", self._empty_state())
        StreamingGP.observe(self, train_X, train_Y, train_Yvar)
        self.eval()

    # -- what a family says ----------------------------------------------------------------------

    @abstractmethod
    def _empty_state(self) -> Any:
        """The state before any data: a frozen dataclass of tensors (see
        `bo_stream.mathematics.shapes`).
        """

    @abstractmethod
    def _absorb(self, state: Any, X: Tensor, Y: Tensor, R: Tensor, *, exact: bool) -> Any:
        """The state given transformed data; the old one stays as it is.

        Args:
            state: The state before.
            X: ``n x d``, n >= 1.
            Y: ``o x n``.
            R: ``o x n`` noise variances before any learned scale; ones, ``1 x n``, if learned.
            exact: Whether it must be exact conditioning, whatever `observe` does otherwise.
        """

    def _rescale(self, state: Any, shift: Tensor, factor: Tensor) -> Any:
        """The state for targets ``(y - shift) / factor`` (both ``o``), noise to match."""
        raise UnsupportedError(
            "a family whose state can be re-expressed in other units",
            type(self).__name__,
            "Keep the Standardize it was built with, or rebuild it from the data.",
        )

    # -- the stream ------------------------------------------------------------------------------

    def observe(self, X: Tensor, Y: Tensor, Yvar: Tensor | None = None) -> Self:
        """Absorb data in place; any batch size. Whatever is raised, nothing has changed then.

        Args:
            X: ``n x d`` raw inputs.
            Y: ``n x m`` raw outcomes.
            Yvar: ``n x m`` raw noise variances, for a surrogate of known noise only.

        Returns:
            The surrogate itself.

        Raises:
            ShapeError, DtypeError, InputError, NoiseError, BoundsError: on data that do not fit.
        """
        self._check_batch(X, Y, Yvar, noise_known=self.noise_mode != "learned")
        if X.shape[0] == 0:
            return self
        self._wholly(lambda: self._absorb_raw(X, Y, Yvar))
        return self

    def _absorb_raw(self, X: Tensor, Y: Tensor, Yvar: Tensor | None) -> None:
        Y_t, Yvar_t = self._outcomes(Y, Yvar, X)
        self._take(self._transformed(X), Y_t.mT, None if Yvar_t is None else Yvar_t.mT)
        if "incumbents" in self._forms:
            self.hold("incumbents", self.held("incumbents").given(X, Y))

    def _take(self, X: Tensor, Y: Tensor, Yvar: Tensor | None, *, exact: bool = False) -> None:
        """Absorb transformed data and count them."""
        R = torch.ones_like(Y[:1]) if Yvar is None else Yvar
        before = self._buffers["_count"]
        self.hold("state", self._absorb(self.held(), X, Y, R, exact=exact))
        if Yvar is not None:
            self._register_state("_noise_sum", self.get_buffer("_noise_sum") + Yvar.sum(-1))
        self._changed(X.shape[0])
        self._tell(cast(Tensor, before), X, Y, R)

    def _tell(self, before: Tensor, X: Tensor, Y: Tensor, R: Tensor) -> None:
        """Remember a batch for the posterior process, while there are few."""
        waiting = X.shape[0] + (self._news[-1].waiting if self._news else 0)
        if waiting > self._news_kept:
            self._news = ()
            return
        after = self.get_buffer("_count")
        self._news = (*self._news, News(before, after, X.clone(), Y.clone(), R.clone(), waiting))

    def _changed(self, points: int = 0) -> None:
        """The last step of every change of the state: a new token, by which it is known."""
        super()._changed(points)
        if self.noise_mode == "known":
            noise = self._seen_noise()
            if noise is not None:  # BoTorch's view of the noise
                view = noise.unsqueeze(-1).to(self.dtype)
                cast(FixedNoiseGaussianLikelihood, self.likelihood).noise = view

    def restandardise(self, Y: Tensor) -> Self:
        """Standardise by these outcomes from now on, the state re-expressed exactly (MATHS 2.2).

        The same surrogate as one built anew on all the data under the new `Standardize`, with the
        hyperparameters at their present values, which are in standardised units: `fit` next. Cost:
        one pass over the state.

        Args:
            Y: ``n x m`` raw outcomes whose mean and standard deviation are to be used: usually
                all that were observed, which the caller keeps.

        Returns:
            The surrogate itself.

        Raises:
            UnsupportedError: unless it was built with a `Standardize`, or if the family cannot.
            ShapeError, InputError: on outcomes that do not fit.
        """
        old = getattr(self, "outcome_transform", None)
        new = standardize_by(old, Y, self.num_outputs)
        self._wholly(lambda: self._re_express(cast(Standardize, old), new))
        return self

    def _re_express(self, old: Standardize, new: Standardize) -> None:
        """The state in the units of another standardisation."""
        means, stdvs = coefficients(old)
        new_means, new_stdvs = coefficients(new)
        factor = new_stdvs / stdvs
        self.hold("state", self._rescale(self.held(), (new_means - means) / stdvs, factor))
        self.outcome_transform = new
        if self.noise_mode != "learned":
            rescaled = self.get_buffer("_noise_sum") / factor.square()
            self._register_state("_noise_sum", rescaled)
        self._changed()

    def _add_books(self, other: StreamingGP) -> None:
        """Count another stream's observations as one's own."""
        device = self.get_buffer("_noise_sum").device
        if self.noise_mode != "learned":
            noise = self.get_buffer("_noise_sum") + other.get_buffer("_noise_sum").to(device)
            self._register_state("_noise_sum", noise)
        if "incumbents" in self._forms and "incumbents" in other._forms:
            best = cast(Incumbents, moved(other.held("incumbents"), device))
            mine = cast(Incumbents, self.held("incumbents"))
            self.hold("incumbents", mine.given(best.incumbent_X, best.incumbent_Y.unsqueeze(-1)))
        self._changed(other.num_observed)

    # -- conditioning ----------------------------------------------------------------------------

    def _conditioned(self, X: Tensor, Y: Tensor, noise: Tensor) -> ProcessModel:
        return conditioned.conditioned(self, X, Y, noise)

    def condition_on_observations(  # type: ignore[override]
        self, X: Tensor, Y: Tensor, noise: Tensor | None = None, **kwargs: Any
    ) -> ProcessModel:
        """The surrogate given more data, exactly; it stays untouched itself.

        Args:
            X: ``batch_shape x n x d`` raw points.
            Y: ``batch_shape' x n x m`` raw values; leading fantasy dimensions share X.
            noise: Noise variances like ``Y``, already outcome-transformed; by default those of a
                typical observation.
            kwargs: What BoTorch passes along (``propagate_grads``).

        Returns:
            For unbatched data that need no gradient, a surrogate of the same class with the points
            absorbed (unless explicit noise is given where noise is learned, which its state cannot
            hold); else a `ConditionedPosterior`.
        """
        check_tensors(X=X, Y=Y, noise=noise)
        plain = X.ndim == 2 and Y.ndim == 2 and not (X.requires_grad or Y.requires_grad)
        if plain and noise is not None:
            holds = self.noise_mode != "learned" and noise.ndim == 2 and not noise.requires_grad
            plain = holds and bool((noise > 0).all())
        if not plain:
            return super().condition_on_observations(X, Y, noise, **kwargs)
        refuse_unknown(kwargs)
        self._check_points(X)
        check_targets(X, Y, self.num_outputs, self.dtype)
        if noise is not None:
            check_noise_fits(noise, Y)
            check_noise(noise)
        return torch.no_grad()(self._given)(X, Y, noise)

    def _given(self, X: Tensor, Y: Tensor, noise: Tensor | None) -> Self:
        """A copy that has absorbed more data, exactly."""
        Y_t = self._outcomes(Y, None, X)[0].mT
        Yvar, points = self._conditioning_noise(Y_t, noise), self._transformed(X)
        child = self._lock(copy.deepcopy)(self)
        if len(points):
            child._take(points, Y_t, Yvar, exact=True)
        return child

    def _conditioning_noise(self, Y: Tensor, noise: Tensor | None) -> Tensor | None:
        """Noise to absorb with ``Y`` (``o x n``), in the units of the state (scaled noise:
        unscaled).
        """
        if self.noise_mode == "learned":
            return None
        variance = self.typical_noise().unsqueeze(-1) if noise is None else noise.double().mT
        return (variance / self._noise_scale().unsqueeze(-1)).expand(Y.shape)

    def subset_output(self, idcs: list[int]) -> ProcessModel:
        """Some of the outputs, as a snapshot; all of them: the surrogate itself."""
        if list(idcs) == list(range(self.num_outputs)):
            return self
        return conditioned.subset(self, idcs)

    # -- what a saved state must agree with ------------------------------------------------------

    def _layout(self) -> dict[str, Any]:
        """What a saved state must agree with to be loaded; families add to it."""
        names = ("input_transform", "outcome_transform")
        return {
            "dim": self._dim,
            "outputs": self.num_outputs,
            "noise": self.noise_mode,
            "kernel": fingerprint(self.covar_module),
            "transforms": [type(getattr(self, name, None)).__name__ for name in names],
            "incumbents": self._incumbents_kept(),
        }

    def _sizes(self) -> dict[str, int]:
        return {"d": self._dim, "o": self.num_outputs}

    def _adopt(self, header: Mapping[str, Any]) -> None:
        """Tracked incumbents, and a standardisation unless the constructor was told otherwise."""
        self._keep_incumbents(header.get("incumbents", 0))
        kind = (header.get("transforms") or [None, None])[1]
        have = type(getattr(self, "outcome_transform", None)).__name__
        if self._outcomes_left_out and kind != have and {kind, have} == {"Standardize", "NoneType"}:
            if kind == "NoneType":
                del self.outcome_transform
            else:
                blank = Standardize(m=self.num_outputs).to(self.get_buffer("_noise_sum"))
                self.outcome_transform = blank.eval()
