"""Streaming classification by Gaussian-process regression on transformed labels.

[Milios] Milios, Camoriano, Michiardi, Rosasco, Filippone 2018, Dirichlet-based Gaussian Processes
for Large-scale Calibrated Classification; over additive statistics as in [WISKI, A.5; MATHS 2.6].
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self, cast

import torch
from botorch.utils.types import DEFAULT
from gpytorch.kernels import Kernel
from torch import Size, Tensor

from bo_stream.base.checkpoint import entries
from bo_stream.base.fitting import FitReport, check_evaluations
from bo_stream.base.gaussian_model import GaussianModel
from bo_stream.base.stream import FitMemory, StateLock, all_or_nothing
from bo_stream.base.streaming_gp import CompositeModel, StreamingGP
from bo_stream.base.units import columns_of
from bo_stream.errors import InputError, StateError, UnsupportedError, whole_number
from bo_stream.mathematics.labels import (
    Label,
    LabelTargets,
    checked_classes,
    read_labels,
    softmax_draws,
    unseen,
)
from bo_stream.mathematics.shapes import side_by_side
from bo_stream.surrogates.registry import family_named, for_targets

__all__ = ["DirichletClassifier"]

TAKEN = ("train_Yvar", "likelihood", "mean_module", "outcome_transform", "loads_data")
"""Options of a family that the labels determine."""
AT_ONCE = 2**21
"""Numbers that a sampled softmax holds at a time."""


class DirichletClassifier(CompositeModel):
    """A classifier whose latent functions are the C outputs of a streaming surrogate.

    Each class is a regression with a constant mean, a kernel and known noise: a label gives its own
    class one target and noise variance, and every other class another. Labels are therefore
    absorbed in any order and batches, and hyperparameters are learned from all labels by the
    evidence. Until `fit` is called, a class without evidence has the mean of an absent class.

    For WISKI and HSGP one more surrogate stands for any class without a label. A new class may then
    appear late, two classifiers may `merge`, and `forget` works; the results are exact. Other
    families with several outputs (NodeWISKI, ExactGP) need all ``classes`` beforehand.

    For two classes, `CountGP` with a `Bernoulli` likelihood is better calibrated at the same cost.

    Costs are those of the surrogate with C + 1 outputs of known noise. Adding a class and merging
    take O(C m^2) with m nodes or features.

    Args:
        train_X: ``n x d`` raw inputs; ``n = 0`` is allowed if ``classes`` are given.
        train_y: ``n`` labels, integers or strings, in a tensor, array, list or data-frame column.
        bounds: ``2 x d`` raw bounds, as required by the family.
        surrogate: A family by name or class. By default ``wiski`` for up to 3 inputs, else
            ``hsgp``.
        classes: Classes in the order of the outputs. By default the labels seen, sorted; classes
            that appear later are appended.
        alpha_epsilon: Dirichlet concentration of the classes other than the label's.
        covar_module: A kernel without batch shape; each class gets hyperparameters of its own. By
            default the family's kernel.
        input_transform: As for every family.
        options: The family's own options: ``grid_size``, ``num_features``, ``cap``, ...

    Attributes:
        model: The surrogate.
        absent: A surrogate of one output for a class that no label names; None for other families.
        alpha_epsilon: Dirichlet concentration of the classes other than the label's.

    Raises:
        InputError, ShapeError, DtypeError, BoundsError: for invalid data, labels or options.
        UnsupportedError: for single-output families, and kernels with a batch shape.

    Example:
        >>> X = torch.rand(60, 2, dtype=torch.double)
        >>> y = (X.sum(-1) > 1.0).long()
        >>> unit = torch.tensor([[0.0, 0.0], [1.0, 1.0]])
        >>> model = DirichletClassifier(X[:50], y[:50], bounds=unit)
        >>> model.observe(X[50:], y[50:]).predict_proba(X[:3]).shape
        torch.Size([3, 2])
    """

    absent: StreamingGP | None

    def __init__(
        self,
        train_X: Tensor,
        train_y: Any,
        *,
        bounds: Any = None,
        surrogate: str | Callable[..., StreamingGP] | None = None,
        classes: Any = None,
        alpha_epsilon: float = 0.01,
        covar_module: Kernel | None = None,
        input_transform: Any = DEFAULT,
        **options: Any,
    ) -> None:
        family = family_named(surrogate, columns_of("train_X", train_X))
        labels, targets = read_labels(train_y, len(train_X)), LabelTargets(alpha_epsilon)
        known = [] if classes is None else checked_classes(classes)
        known += unseen(labels, known)
        if not known:
            raise InputError("a class", "neither labels nor `classes`", "Name the classes.")
        if covar_module is not None and covar_module.batch_shape != Size():
            raise UnsupportedError(
                "a kernel of one output",
                f"one of batch shape {tuple(covar_module.batch_shape)}",
                "Leave out batch_shape: every class gets hyperparameters of its own.",
            )
        options |= {"bounds": bounds, "covar_module": copy.deepcopy(covar_module)}
        one = for_targets(family, train_X, TAKEN, input_transform, options)
        super().__init__()
        self._lock, self._seen = StateLock(), dict.fromkeys(known, 0)
        self._targets, self.alpha_epsilon = targets, targets.alpha_epsilon
        one._set_prior_mean(train_X.new_tensor([targets.other[0]]))
        self.model = of_outputs(one, len(known))
        self.model._set_prior_mean(one._prior_mean().detach().expand(len(known)))
        sums = one.promises.additive and one.promises.order_invariant
        self.absent = copy.deepcopy(one) if sums else None
        self._share_lock()
        self.observe(train_X, train_y)
        self.eval()

    # -- parts -----------------------------------------------------------------------------------

    @all_or_nothing
    def _become(self, model: StreamingGP, seen: dict[Label, int]) -> None:
        """Replace the surrogate; ``seen`` counts the labels of each class."""
        self._set("model", model)
        self._set("_seen", seen)
        self._share_lock()

    def _widened(self, classes: Sequence[Label], what: str) -> StreamingGP:
        """A surrogate of these classes, with those that no label names: O(C m^2).

        Args:
            classes: The classes, in the order of its outputs.
            what: What needs it, for the error.

        Raises:
            UnsupportedError: for families that are no sums.
        """
        model, absent = self.model, self.absent
        if absent is None:
            raise UnsupportedError(
                f"{what} for {type(model).__name__}",
                "something else",
                "Give `classes` when building it, or use WISKI or HSGP.",
            )
        places = {label: k for k, label in enumerate(self.classes)}
        outputs = [places.get(label, len(places)) for label in classes]
        wide = of_outputs(absent, len(outputs))
        for name, parameter in wide.named_parameters():
            old, other = model.get_parameter(name), absent.get_parameter(name)
            rows = torch.cat([old.data.view(len(places), -1), other.data.view(1, -1)])[outputs]
            parameter.data.copy_(rows.view(parameter.shape))
            parameter.requires_grad_(old.requires_grad)
        states = (
            model.state,
            absent.stream.contents.sums.along(model.stream.contents.sums, absent.num_observed),
        )
        noise_sum = torch.cat([one.stream.noise_sum for one in (model, absent)])[outputs]
        state, count = side_by_side(states, outputs), model.stream.count
        wide._replace(state=state, count=count, noise_sum=noise_sum)
        return wide

    # -- labels ----------------------------------------------------------------------------------

    @property
    def classes(self) -> list[Label]:
        """The classes, in the order of the outputs and of the columns of probabilities."""
        return list(self._seen)

    @property
    def class_counts(self) -> dict[Label, int]:
        """Number of labels absorbed for each class."""
        return dict(self._seen)

    @all_or_nothing
    def observe(self, X: Tensor, y: Any) -> Self:
        """Absorb labels in place; if it raises, nothing has changed.

        Args:
            X: ``n x d`` raw inputs.
            y: ``n`` labels of the same type as before; an unseen label adds a class.

        Raises:
            InputError, ShapeError, DtypeError, BoundsError: for invalid data.
            UnsupportedError: for an unseen class, if the family cannot add one.
        """
        self.model.transformed(X)  # which checks them
        labels = read_labels(y, len(X))
        late, model, absent = unseen(labels, self.classes), self.model, self.absent
        seen = {**self._seen, **dict.fromkeys(late, 0)}
        if late:
            model = self._widened(list(seen), f"all classes named beforehand ({late[0]!r} is new)")
        before = informative_classes(seen)
        named = torch.tensor([[label == one for one in seen] for label in labels], device=X.device)
        named = named.reshape(len(labels), len(seen))
        for label in labels:
            seen[label] += 1
        self._become(model, seen)
        model.observe(X, *self._targets.regressions(named, X))
        if absent is not None and labels:
            absent._replace(
                state=absent.stream.contents.sums.along(
                    model.stream.contents.sums, absent.num_observed
                )
            )
            other = self._targets.regressions(torch.zeros_like(named[:, :1]), X)
            absent._absorb_batch(X, *other, same_features=True)
        if informative_classes(seen) != before:  # the next fit starts from several places
            memory = model.stream.contents.fits
            model._note(fits=FitMemory(memory.curvature, memory.explored[:0]))
        return self

    @all_or_nothing
    def merge(self, other: DirichletClassifier) -> Self:
        """Add another stream's labels in place; its additional classes are appended. O(C m^2).

        Hyperparameters keep this classifier's values.

        Raises:
            StateError: if families, features, transforms or ``alpha_epsilon`` differ.
            UnsupportedError: if the family cannot be merged.
        """
        if not isinstance(other, DirichletClassifier) or other._targets != self._targets:
            raise StateError(
                f"a DirichletClassifier of alpha_epsilon {self.alpha_epsilon}",
                f"{getattr(other, 'alpha_epsilon', type(other).__name__)}",
                "Build both alike.",
            )
        known = self.classes + unseen(other.classes, self.classes)
        mine, theirs = (one._widened(known, "a family that merges") for one in (self, other))
        mine.merge(theirs)
        cast(StreamingGP, self.absent).merge(cast(StreamingGP, other.absent))
        seen = {one: self._seen.get(one, 0) + other._seen.get(one, 0) for one in known}
        self._become(mine, seen)
        return self

    @all_or_nothing
    def forget(self, factor: float) -> Self:
        """Down-weight all labels so far by ``factor``; see `StreamingGP.forget`.

        Raises:
            InputError: for a factor that is not above 0 and at most 1.
            UnsupportedError: if the family cannot forget.
        """
        for part in self._streams():
            part.forget(factor)
        return self

    # -- hyperparameters -------------------------------------------------------------------------

    def log_evidence(self) -> Tensor:
        """The log evidence of the transformed labels, summed over classes, 0-dim."""
        return self.model.log_evidence()

    def fit(self, max_evals: int | None = None) -> FitReport:
        """Fit every class's hyperparameters by the evidence of all labels, warm-started.

        A class keeps its hyperparameters while no label, or every label, belongs to it, because
        constant targets carry no information about them.

        Args:
            max_evals: Maximum number of evaluations of objective and gradient; by default the
                fit stops once the gain falls below 0.01 nat.
        """
        check_evaluations(max_evals)
        informative = informative_classes(self._seen)
        if not any(informative):
            return FitReport(0, float(self.log_evidence().detach()), True)
        before = [(p, p.detach().clone()) for p in self.model.parameters()]
        report = self.model.fit(max_evals)
        silent = [k for k, known in enumerate(informative) if not known]
        for parameter, value in before:
            rows = parameter.data.view(self.num_outputs, -1)
            rows[silent] = value.view(self.num_outputs, -1)[silent]
        return report

    # -- predictions -----------------------------------------------------------------------------

    def latent(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """Means and variances of the latent functions at ``batch_shape x q x d``, each
        ``batch_shape x q x C``.
        """
        posterior = self.model.posterior(X)
        return posterior.mean, posterior.variance

    def predict_proba(self, X: Tensor, num_samples: int = 512) -> Tensor:
        """Probabilities of the classes at ``n x d`` raw points: ``n x C``, in order of `classes`.

        Means over quasi-random draws of the latent values, which are the same at every call. O(n C
        num_samples) beyond the posterior.
        """
        whole_number("num_samples", num_samples, 1)
        self.model.transformed(X)  # or refuse
        chunks = X.split(max(1, AT_ONCE // (num_samples * self.num_outputs)), -2)
        with torch.no_grad():
            parts = [softmax_draws(*self.latent(x), num_samples).mean(0) for x in chunks]
        return torch.cat(parts, -2)

    def predict(self, X: Tensor) -> Tensor | list[str]:
        """The class of largest latent mean at ``n x d`` raw points: a tensor of integers, or a list
        of strings.
        """
        with torch.no_grad():
            best = self.latent(X)[0].argmax(-1).tolist()
        labels = [self.classes[k] for k in best]
        if isinstance(self.classes[0], str):
            return cast("list[str]", labels)
        return torch.tensor(labels, dtype=torch.long)

    def believing(self, X: Tensor) -> GaussianModel:
        """The latent functions given labels with unchanged means at ``q x d`` raw pending points.

        Variances shrink by a label's expected precision.
        """
        with torch.no_grad():
            noise = self._targets.expected_noise(self.predict_proba(X))
            return self.model.condition_on_observations(X, self.latent(X)[0], noise)

    # -- saving ----------------------------------------------------------------------------------

    def _arguments(self) -> dict[str, Any]:
        labels = {"train_y": [], "classes": self.classes, "alpha_epsilon": self.alpha_epsilon}
        return {**self._shared_arguments("train_X"), **labels}

    def _header(self) -> dict[str, Any]:
        settings = {"classes": self.classes, "alpha_epsilon": self.alpha_epsilon}
        return {"class": type(self).__name__, **settings}

    def _noted(self) -> dict[str, Any]:
        return {"counts": list(self._seen.values())}

    def _load(
        self, state: Mapping[str, Any], data: Mapping[str, Any] | None, changed: bool
    ) -> None:
        """Load the class that no label names, and the numbers of labels."""
        if data is not None:
            self._become(self.model, dict(zip(self.classes, data["counts"], strict=True)))
            if self.absent is not None:
                self.absent.load_state_dict(entries(state, "absent."))


def informative_classes(seen: Mapping[Label, int]) -> list[bool]:
    """For each class, whether some labels name it and some do not."""
    n = sum(seen.values())
    return [0 < count < n for count in seen.values()]


def of_outputs(one: StreamingGP, outputs: int) -> StreamingGP:
    """An empty surrogate of several outputs, each with the kernel and options of one of one
    output.
    """
    arguments, kernel = one._arguments(), copy.deepcopy(one.covar_module)
    parts = [part for part in kernel.modules() if isinstance(part, Kernel)]
    for part in parts if outputs > 1 else []:  # `expand_batch` fails on sums and active dimensions
        for parameter in part.parameters(recurse=False):
            parameter.data = parameter.data.expand(outputs, *parameter.shape).contiguous()
        part.batch_shape = Size([outputs])
    X = arguments["train_X"].to(one._like.device)
    none = X.new_empty(0, outputs)
    data = {"train_X": X, "train_Y": none, "train_Yvar": none}
    return type(one)(**{**arguments, **data, "covar_module": kernel, "mean_module": None})
