"""Streaming classification by Gaussian-process regression on transformed labels.

[Milios] Milios, Camoriano, Michiardi, Rosasco, Filippone 2018, Dirichlet-based Gaussian Processes
for Large-scale Calibrated Classification; over additive statistics as in [WISKI, A.5; MATHS 2.6].
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, Self

import torch
from botorch.utils.types import DEFAULT
from gpytorch.kernels import Kernel
from torch import Tensor, nn

from bo_stream.base.checks import inputs_of
from bo_stream.base.composite import absorb_points, align, kernel_for, target_free_stream
from bo_stream.base.fitting.memory import FitMemory
from bo_stream.base.fitting.report import FitReport
from bo_stream.base.stream import StateLock, all_or_nothing
from bo_stream.base.streaming_gp import StreamingGP
from bo_stream.base.units import bounds_for, input_transform_for
from bo_stream.errors import InputError, OptionError, StateError
from bo_stream.mathematics.classification import labels as reading
from bo_stream.mathematics.classification.class_counts import informative_classes
from bo_stream.mathematics.classification.label_targets import LabelTargets
from bo_stream.mathematics.classification.labels import Label, read_labels, unseen
from bo_stream.surrogates.classifier_base import CountedClasses
from bo_stream.surrogates.registry import family_named

__all__ = ["DirichletClassifier"]

TAKEN = ("train_Yvar", "likelihood", "mean_module", "outcome_transform", "loads_data")
"""Options of a family that the labels determine."""


class DirichletClassifier(CountedClasses):
    """A classifier whose latent functions are the C outputs of a streaming surrogate.

    Each class is a regression with a constant mean, a kernel and known noise: a label gives its own
    class one target and noise variance, and every other class another. Labels are therefore
    absorbed in any order and batches, and hyperparameters are learned from all labels by the
    evidence. Until `fit` is called, a class without evidence has the mean of an absent class.

    For WISKI and HSGP the points of each class are also counted separately. A new class may then
    appear late, ``alpha_epsilon`` may be changed, two classifiers may `merge`, and `forget` works;
    the results are exact. Other families with several outputs (NodeWISKI, ExactGP) need all
    ``classes`` beforehand and a fixed ``alpha_epsilon``.

    For two classes, `CountGP` with a `Bernoulli` likelihood is better calibrated at the same cost.

    Costs are those of the surrogate with C outputs of known noise. The counts double its memory;
    `observe` counts a point for its class only. Adding a class, changing ``alpha_epsilon`` and
    merging take O(C^2 m^2) with m nodes or features.

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
        dim = inputs_of("train_X", train_X)
        labels, pairs = read_labels(train_y, len(train_X)), LabelTargets.of(alpha_epsilon)
        known = [] if classes is None else reading.checked_classes(classes)
        known += unseen(labels, known)
        if not known:
            raise InputError("a class", "neither labels nor `classes`", "Name the classes.")
        taken = sorted(set(TAKEN) & set(options))
        if taken:
            raise OptionError("options not set by labels", ", ".join(taken), "Leave them out.")
        family, X = family_named(surrogate, dim), train_X.detach()
        bounds, none = bounds_for(bounds, input_transform, X), X.new_empty(0, len(known))
        options |= {"bounds": bounds, "outcome_transform": None}
        options |= {"input_transform": input_transform_for(input_transform, X, bounds)}
        kernel = covar_module or family(X[:0], none[:, :1], none[:, :1], **options).covar_module
        model = family(X[:0], none, none, covar_module=kernel_for(kernel, len(known)), **options)
        model._set_prior_mean(X.new_full((len(known),), pairs.other.target))
        counted = model.promises.additive and model.promises.order_invariant
        streams = [target_free_stream(model, kernel) for _ in known] if counted else []
        nn.Module.__init__(self)
        self._lock = StateLock()
        self._hold(model, streams, dict.fromkeys(known, 0), pairs)
        self.observe(train_X, train_y)
        self.eval()

    # -- labels ----------------------------------------------------------------------------------

    def observe(self, X: Tensor, y: Any) -> Self:
        """Absorb labels in place; if it raises, nothing has changed.

        Args:
            X: ``n x d`` raw inputs.
            y: ``n`` labels of the same type as before; an unseen label adds a class.

        Raises:
            InputError, ShapeError, DtypeError, BoundsError: for invalid data.
            UnsupportedError: for an unseen class, if the family cannot add one.
        """
        self.model._check_points(X)
        labels = read_labels(y, len(X))
        others = X.new_zeros(*X.shape[:-1], len(self._classes), dtype=self.model.dtype)
        self.model._check_batch(X, others, others + 1.0)
        if labels:
            self._absorb_labels(X, labels)
        return self

    @all_or_nothing
    def _absorb_labels(self, X: Tensor, labels: list[Label]) -> None:
        """Absorb checked labels, including those of new classes."""
        late, seen = unseen(labels, self._classes), dict(self._seen)
        model, streams = self.model, self._streams_of_classes()
        if late:
            self._need_class_sums(f"all classes named beforehand ({late[0]!r} is new)")
            seen |= dict.fromkeys(late, 0)
            streams += [target_free_stream(model, self._kernel()) for _ in late]
            model = self._combined(streams, len(seen), self._pairs)
        before = informative_classes(seen)
        column = {label: k for k, label in enumerate(seen)}
        index = torch.tensor([column[label] for label in labels], device=X.device)
        named = index.unsqueeze(-1) == torch.arange(len(seen), device=X.device)
        for label in labels:
            seen[label] += 1
        self._become(model, streams, seen, self._pairs)
        model._absorb_batch(X, *self._pairs.regressions(named, X))
        for k, one in enumerate(streams):
            align(one, model)
            if bool(named[:, k].any()):
                absorb_points(one, X[named[:, k]])
        if informative_classes(seen) != before:  # the next fit starts from several places
            memory = model.stream.contents.fits
            model._note(fits=FitMemory(memory.curvature, memory.explored[:0]))

    @property
    def alpha_epsilon(self) -> float:
        """Dirichlet concentration of the classes other than the label's; may be assigned.

        Hyperparameters keep their values, except constant means, which follow the targets. Call
        `fit` next.
        """
        return self._pairs.alpha_epsilon

    @alpha_epsilon.setter
    def alpha_epsilon(self, value: float) -> None:
        pairs = LabelTargets.of(value)
        self._need_class_sums("the alpha_epsilon it was built with")
        streams = self._streams_of_classes()
        model = self._combined(streams, len(self._classes), pairs)
        self._become(model, streams, self._seen, pairs)

    def merge(self, other: DirichletClassifier) -> Self:
        """Add another stream's labels in place; its additional classes are appended. O(C^2 m^2).

        Hyperparameters and ``alpha_epsilon`` keep this classifier's values.

        Raises:
            StateError: if families, features or transforms differ.
            UnsupportedError: if the family cannot be merged.
        """
        if not isinstance(other, DirichletClassifier):
            raise StateError("a DirichletClassifier", type(other).__name__, "Pass a classifier.")
        for one in (self, other):
            one._need_class_sums("a family whose streams merge")
        known = self._classes + unseen(other._classes, self._classes)
        streams = copy.deepcopy(self._streams_of_classes())
        late = known[len(streams) :]
        streams += [target_free_stream(self.model, self._kernel()) for _ in late]
        for label, theirs in zip(other._classes, other._streams_of_classes(), strict=True):
            streams[known.index(label)].merge(theirs)
        model = self._combined(streams, len(known), self._pairs)
        seen = {k: one.num_observed for k, one in zip(known, streams, strict=True)}
        self._become(model, streams, seen, self._pairs)
        return self

    # -- hyperparameters -------------------------------------------------------------------------

    def fit(self, max_evals: int | None = None) -> FitReport:
        """Fit every class's hyperparameters by the evidence of all labels, warm-started.

        A class keeps its hyperparameters while no label, or every label, belongs to it, because
        constant targets carry no information about them.

        Args:
            max_evals: Maximum number of evaluations of objective and gradient; by default the
                fit stops once the gain falls below 0.01 nat.
        """
        informative = informative_classes(self._seen)
        silent = [k for k, known in enumerate(informative) if not known]
        if len(silent) == len(self._classes):
            return FitReport(0, float(self.log_evidence().detach()), True)
        before = [(p, p.detach().clone()) for p in self.model.parameters()]
        report = self.model.fit(max_evals)
        for parameter, value in before:
            rows = parameter.data.view(len(self._classes), -1)
            rows[silent] = value.view(len(self._classes), -1)[silent]
        self._align_classes()
        return report

    @all_or_nothing
    def _align_classes(self) -> None:
        """Give the sums of each class the surrogate's current features."""
        for one in self._streams_of_classes():
            align(one, self.model)
