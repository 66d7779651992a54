"""A state, hyperparameters, and what follows from the two: the process now, and fits."""

from __future__ import annotations

import copy
import os
from abc import abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple, cast

import torch
from gpytorch.kernels import Kernel
from gpytorch.likelihoods import Likelihood
from gpytorch.means import ConstantMean, Mean, ZeroMean
from gpytorch.mlls import MarginalLogLikelihood
from gpytorch.models import GP
from torch import Tensor

from bo_stream.base import checkpoint
from bo_stream.base.botorch_model import Moment, ProcessModel
from bo_stream.base.fitting.fit import fit_model
from bo_stream.base.fitting.objective import StreamMLL
from bo_stream.base.fitting.report import FitReport
from bo_stream.base.fitting.surprise import shortfall
from bo_stream.base.hyperparameter_key import Meaning
from bo_stream.base.noise import noise_scale
from bo_stream.base.options import own_options
from bo_stream.base.state import HeldState, Memo
from bo_stream.base.validation import check_targets, check_tensors, check_variances
from bo_stream.errors import ShapeError, UnsupportedError
from bo_stream.mathematics.linalg import chol_psd
from bo_stream.mathematics.posterior.process import PosteriorProcess

__all__ = ["FittedModel", "News", "PredictiveScore"]


class PredictiveScore(NamedTuple):
    """How a prediction of new data did, all 0-dim.

    Attributes:
        log_density: Of the data, in raw units, nats.
        shortfall: By how much it falls short of what was to be expected of it, nats.
        variance: Of the shortfall, if the prediction is right.
    """

    log_density: Tensor
    shortfall: Tensor
    variance: Tensor


class News(NamedTuple):
    """A batch absorbed since a posterior process was built: between two tokens of the state; with
    the number of points that wait to be folded, these included.
    """

    before: Tensor
    after: Tensor
    X: Tensor
    Y: Tensor
    R: Tensor
    waiting: int

    def __deepcopy__(self, memo: dict[int, Any]) -> News:
        before, after = (copy.deepcopy(token, memo) for token in (self.before, self.after))
        return News(before, after, self.X, self.Y, self.R, self.waiting)


class FittedModel(HeldState, ProcessModel, GP):
    """What a held state and hyperparameters give: a posterior process, an objective, fits."""

    covar_module: Kernel
    mean_module: Mean
    likelihood: Likelihood
    noise_mode: str
    _memo: Memo | None
    _news: tuple[News, ...]

    @abstractmethod
    def _build_process(self, state: Any) -> PosteriorProcess:
        """The posterior process, frozen, without gradient to hyperparameters."""

    @abstractmethod
    def _objective(self, profile_mean: bool) -> tuple[Tensor, Tensor | None]:
        """What the hyperparameters climb, without priors: 0-dim, differentiable. Writes nothing.

        With ``profile_mean`` it is the value at the best constant means given the rest, which are
        returned beside it (``o``, without gradient; None where nothing tells); else at the present
        ones, and None.
        """

    def _update_process(
        self, process: PosteriorProcess, news: tuple[News, ...]
    ) -> PosteriorProcess | None:
        """The process given batches absorbed since, at the same hyperparameters, where that is
        cheaper than building it anew; else None.
        """
        return None

    def _options(self) -> dict[str, Any]:
        """The family's own options, by which a checkpoint builds it: attributes of their names."""
        return {name: getattr(self, name) for name in own_options(type(self))}

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a checkpoint that `bo_stream.load` alone makes this surrogate of again."""
        checkpoint.save(self, path)

    # -- the process now -------------------------------------------------------------------------

    def _now(self) -> Moment:
        memo, meaning = self._memo, self._meaning()
        if memo is not None and self._holds(memo) and memo.meaning.as_it_stands(meaning):
            return cast(Moment, memo.value)
        # a writer may be at work: what it leaves behind is whole
        return self._lock(torch.no_grad()(self._derived))()

    def _derived(self) -> Moment:
        """The moment of now, made of the last one where that serves."""
        memo, meaning = self._memo, self._meaning().settle()
        token = cast(Tensor, self._buffers["_count"])
        alike = memo is not None and memo.meaning.same_as(meaning)
        if memo is not None and alike and self._holds(memo):
            moment = cast(Moment, memo.value)
        else:
            process = self._brought_forward(memo, token) if memo is not None and alike else None
            process = self._build_process(self.held()) if process is None else process
            if memo is not None and alike:
                process.follow(cast(Moment, memo.value).process)
            transform = getattr(self, "outcome_transform", None)
            moment = Moment(process, self._noise_of_an_observation(), transform)
        self._memo = Memo(moment, meaning, token)
        self._news = ()
        return moment

    def _holds(self, memo: Memo) -> bool:
        """Whether neither the state nor the outcome transform has changed since."""
        transform = self._modules.get("outcome_transform")
        same = memo.token is self._buffers["_count"]
        return same and cast(Moment, memo.value).outcome_transform is transform

    def _brought_forward(self, memo: Memo, token: Tensor) -> PosteriorProcess | None:
        """The memo's process given what was absorbed since, or None if that is not known."""
        process, reached, news = cast(Moment, memo.value).process, memo.token, []
        for batch in self._news:
            if batch.before is reached:
                news.append(batch)
                reached = batch.after
        if reached is not token:
            return None
        return self._update_process(process, tuple(news)) if news else process

    def refresh(self) -> None:
        """Forget what was derived from the state: what comes next is made from the state alone.

        A surrogate that is refreshed goes on exactly like one that was just loaded; one that is
        not may have its posterior brought forward, which differs in the last digits.
        """
        self._lock(self._changed)()

    def _meaning(self) -> Meaning:
        return Meaning((self.covar_module, self.likelihood, self.mean_module))

    def log_predictive(self, X: Tensor, Y: Tensor, Yvar: Tensor | None = None) -> Tensor:
        """Log density of new data before they are absorbed: the prequential score, 0-dim, in raw
        units.

        Args:
            X: ``n x d`` raw inputs.
            Y: ``n x m`` raw outcomes.
            Yvar: ``n x m`` raw noise variances, where noise is known.
        """
        return self.predictive_score(X, Y, Yvar).log_density

    def predictive_score(self, X: Tensor, Y: Tensor, Yvar: Tensor | None = None) -> PredictiveScore:
        """`log_predictive`, and by how much it falls short of what the prediction itself promised.

        Summed over a stream by `bo_stream.scores.Surprise`, shortfalls tell whether a surrogate's
        predictions are as good as it says they are. Arguments are those of `log_predictive`.

        Example:
            >>> from bo_stream import ExactGP
            >>> from bo_stream.scores import Surprise
            >>> X = torch.linspace(0.0, 1.0, 40, dtype=torch.double).unsqueeze(-1)
            >>> model, surprise = ExactGP(X[:20], X[:20].sin()), Surprise.none(X[0, 0])
            >>> for x, y in zip(X[20:].split(5), X[20:].cos().split(5)):  # another function
            ...     surprise = surprise.seen(*model.predictive_score(x, y)[1:], len(x))
            >>> surprise.behind
            True
        """
        self._check_batch(X, Y, Yvar, noise_known=self.noise_mode != "learned")
        if not X.shape[0]:
            zero = self.get_buffer("_noise_sum").new_zeros(())
            return PredictiveScore(zero, zero, zero)
        return torch.no_grad()(self._scored)(X, Y, Yvar)

    def _scored(self, X: Tensor, Y: Tensor, Yvar: Tensor | None) -> PredictiveScore:
        with torch.enable_grad():
            raw = Y.detach().double().requires_grad_()
            Y_t, Yvar_t = self._outcomes(raw, Yvar, X)
            (slope,) = torch.autograd.grad(Y_t.sum(), raw)
        joint = self.process().at(self._transformed(X))
        noise = self._noise_scale().unsqueeze(-1).expand(Y_t.mT.shape)
        noise = noise if Yvar_t is None else noise * Yvar_t.mT
        L = chol_psd(joint.covariance(joint) + torch.diag_embed(noise))
        density = torch.distributions.MultivariateNormal(joint.mean, scale_tril=L)
        residuals = (Y_t.mT.detach() - joint.mean).unsqueeze(-1)
        white = torch.linalg.solve_triangular(L, residuals, upper=False)
        log_density = density.log_prob(Y_t.mT.detach()).sum() + slope.abs().log().sum()
        return PredictiveScore(log_density, *shortfall(white))

    @property
    def num_observed(self) -> int:
        """How many observations the state holds."""
        return int(self.get_buffer("_count"))

    # -- hyperparameters -------------------------------------------------------------------------

    def log_evidence(self) -> Tensor:
        """The log evidence (families say where it is a bound), summed over outputs, without priors.

        0-dim, constants included, differentiable in every hyperparameter.
        """
        return self._objective(profile_mean=False)[0]

    def make_mll(self) -> MarginalLogLikelihood:
        """The objective of `fit`, for `fit_gpytorch_mll`: evidence (or bound) plus log priors."""
        return StreamMLL(self)

    @property
    def explores(self) -> bool:
        """Whether a fit may try starts far from now: its objective is of all data."""
        return True

    @property
    def refit_due(self) -> bool:
        """Whether the surrogate itself says that it is time to `fit`; without a schedule, never."""
        return False

    def fit(self, max_evals: int | None = None) -> FitReport:
        """Fit the hyperparameters, warm-started from where they are.

        Interrupted, it leaves the best hyperparameters seen.

        Args:
            max_evals: Most objective-and-gradient evaluations; None: until the gain falls below
                0.01 nat.
        """
        return self._lock(torch.enable_grad()(fit_model))(self, max_evals)

    def custom_fit(
        self,
        mll: MarginalLogLikelihood,
        closure: Callable[..., Any] | None = None,
        closure_kwargs: dict[str, Any] | None = None,
        optimizer_kwargs: dict[str, Any] | None = None,
        optimizer: Callable[..., Any] | None = None,
        **kwargs: Any,
    ) -> MarginalLogLikelihood:
        """The hook of `fit_gpytorch_mll`. A user's optimizer is honoured, a closure refused.

        Without an optimizer, ``optimizer_kwargs`` may hold ``max_evals`` (or, as BoTorch's default
        optimizer has it, ``options={"maxiter": ...}``).

        Raises:
            UnsupportedError: if a closure is given: the objective is the family's.
        """
        if closure is not None or closure_kwargs:
            raise UnsupportedError(
                "no closure", "a user's closure", "Change priors or pass an optimizer instead."
            )
        if optimizer is None:
            wanted = optimizer_kwargs or {}
            self.fit(wanted.get("max_evals", wanted.get("options", {}).get("maxiter")))
        else:
            own = mll if isinstance(mll, StreamMLL) else self.make_mll()
            own.train()
            closure = cast(StreamMLL, own).closure()
            self._lock(optimizer)(own, closure=closure, **(optimizer_kwargs or {}))
            own.eval()
        return mll.eval()

    def _noise_scale(self) -> Tensor:
        """What multiplies the noise held in the state (``o``), differentiable."""
        return noise_scale(self.noise_mode, self.likelihood, self.get_buffer("_noise_sum"))

    def _prior_mean(self) -> Tensor:
        """The constant prior mean (``o``), float64, differentiable."""
        if isinstance(self.mean_module, ZeroMean):
            return self.get_buffer("_noise_sum").new_zeros(self.num_outputs)
        return self.mean_module.constant.double().reshape(-1).expand(self.num_outputs)

    def _set_prior_mean(self, means: Tensor) -> None:
        """Write constant prior means (``o``) to the mean module."""
        module = cast(ConstantMean, self.mean_module)
        module.constant = means.reshape(module.constant.shape).to(module.constant)

    def _seen_noise(self) -> Tensor | None:
        """Running mean of the noise variances seen (``o``), before any learned scale."""
        count = self.get_buffer("_count")
        return self.get_buffer("_noise_sum") / count if int(count) else None

    def _noise_of_an_observation(self) -> Tensor | None:
        """Noise variance of a typical observation (``o``), transformed; None where unknown."""
        if self.noise_mode == "learned":
            return self._noise_scale().detach().clone()  # no view of the parameter
        seen = self._seen_noise()
        return None if seen is None else self._noise_scale().detach() * seen

    def _check_batch(self, X: Tensor, Y: Tensor, Yvar: Tensor | None, *, noise_known: bool) -> None:
        check_tensors(X=X, Y=Y, Yvar=Yvar)
        self._check_points(X)
        if X.ndim != 2 or Y.ndim != 2:
            raise ShapeError(
                "X `n x d` and Y `n x m`",
                f"{tuple(X.shape)} and {tuple(Y.shape)}",
                "Surrogates are unbatched; build one per batch.",
            )
        check_targets(X, Y, self.num_outputs, self.dtype)
        check_variances(Y, Yvar, noise_known)
