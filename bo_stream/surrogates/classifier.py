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
from torch import Size, Tensor, nn

from bo_stream.base.checkpoint import entries
from bo_stream.base.checks import inputs_of
from bo_stream.base.composite import CompositeModel
from bo_stream.base.fitting import FitReport, check_evaluations
from bo_stream.base.gaussian_model import GaussianModel
from bo_stream.base.stream import FitMemory, StateLock, all_or_nothing
from bo_stream.base.streaming_gp import StreamingGP, emptied
from bo_stream.errors import InputError, StateError, UnsupportedError
from bo_stream.mathematics.labels import (
    Label,
    LabelTargets,
    checked_classes,
    read_labels,
    softmax_draws,
    unseen,
)
from bo_stream.mathematics.rows import Rows
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

    For WISKI and HSGP the points of each class are also counted separately. A new class may then
    appear late, two classifiers may `merge`, and `forget` works; the results are exact. Other
    families with several outputs (NodeWISKI, ExactGP) need all ``classes`` beforehand.

    For two classes, `CountGP` with a `Bernoulli` likelihood is better calibrated at the same cost.

    Costs are those of the surrogate with C outputs of known noise. The counts double its memory;
    `observe` counts a point for its class only. Adding a class and merging take O(C^2 m^2) with m
    nodes or features.

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
        class_streams: One surrogate of one output for each class, which has absorbed the points of
            the class with outcome zero and noise one; empty for other families. From these sums
            follow those for any target and noise.

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

    class_streams: nn.ModuleList

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
        family = family_named(surrogate, dim)
        one = for_targets(family, train_X, TAKEN, input_transform, options)
        super().__init__()
        self._lock, self._seen, self._targets = StateLock(), dict.fromkeys(known, 0), targets
        self.model = of_outputs(one, len(known))
        self.model._set_prior_mean(train_X.new_full((len(known),), targets.other[0]))
        counted = known if one.promises.additive and one.promises.order_invariant else []
        self.class_streams = nn.ModuleList(emptied(one) for _ in counted)
        self._share_lock()
        self.observe(train_X, train_y)
        self.eval()

    # -- parts -----------------------------------------------------------------------------------

    @all_or_nothing
    def _become(
        self,
        model: StreamingGP,
        streams: Sequence[StreamingGP],
        seen: dict[Label, int],
    ) -> None:
        """Replace the parts, which share one lock; ``seen`` counts the labels of each class."""
        self._set("model", model)
        self._set("class_streams", nn.ModuleList(streams))
        self._set("_seen", seen)
        self._share_lock()

    def _streams(self) -> list[StreamingGP]:
        return [self.model, *cast("list[StreamingGP]", list(self.class_streams))]

    def _class_sums(self, what: str) -> list[StreamingGP]:
        """The streams of the classes, over the surrogate's present features.

        Raises:
            UnsupportedError: for families that have none, naming what needs them.
        """
        if not len(self.class_streams):
            raise UnsupportedError(
                f"{what} for {type(self.model).__name__}",
                "something else",
                "Give `classes` when building it, or use WISKI or HSGP.",
            )
        streams = self._streams()[1:]
        for one in streams:
            follow_features(one, self.model)
        return streams

    def _combined(self, streams: Sequence[StreamingGP]) -> StreamingGP:
        """A surrogate built from the points of each class, with the present hyperparameters:
        O(C^2 m^2).
        """
        outputs, before = len(streams), self.model._prior_mean().detach()
        model = of_outputs(streams[0], outputs)
        for name, parameter in model.named_parameters():
            old = self.model.get_parameter(name)
            rows = parameter.data.view(outputs, -1)
            rows[: len(before)] = old.data.reshape(len(before), -1)
            parameter.requires_grad_(old.requires_grad)
        means = before.new_full((outputs,), self._targets.other[0])
        means[: len(before)] = before
        model._set_prior_mean(means)
        named = torch.eye(outputs, dtype=torch.bool, device=means.device)
        t, d = self._targets.regressions(named, means)
        counts = torch.stack([one.stream.count for one in streams])
        states = [sum_of_regressions(streams, *row) for row in zip(t, d, strict=True)]
        total, noise_sum = counts.sum(), d @ counts.to(d)
        model._replace(state=side_by_side(states), count=total, noise_sum=noise_sum)
        return model

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
        self.model._check_points(X)
        labels = read_labels(y, len(X))
        late, seen = unseen(labels, self.classes), dict(self._seen)
        model, streams = self.model, self._streams()[1:]
        if late:
            streams = self._class_sums(f"all classes named beforehand ({late[0]!r} is new)")
            seen |= dict.fromkeys(late, 0)
            streams += [emptied(streams[0]) for _ in late]
            model = self._combined(streams)
        before = informative_classes(seen)
        named = torch.tensor([[label == one for one in seen] for label in labels], device=X.device)
        named = named.reshape(len(labels), len(seen))
        for label in labels:
            seen[label] += 1
        self._become(model, streams, seen)
        model.observe(X, *self._targets.regressions(named, X))
        points = model._transformed(X)
        for one, rows in zip(streams, named.mT, strict=bool(streams)):
            follow_features(one, model)
            if bool(rows.any()):
                zeros = torch.zeros_like(points[rows, :1]).mT
                one._absorb_rows(Rows(points[rows], zeros, zeros + 1.0), same_features=True)
        if informative_classes(seen) != before:  # the next fit starts from several places
            memory = model.stream.contents.fits
            model._note(fits=FitMemory(memory.curvature, memory.explored[:0]))
        return self

    @property
    def alpha_epsilon(self) -> float:
        """Dirichlet concentration of the classes other than the label's."""
        return self._targets.alpha_epsilon

    def merge(self, other: DirichletClassifier) -> Self:
        """Add another stream's labels in place; its additional classes are appended. O(C^2 m^2).

        Hyperparameters and ``alpha_epsilon`` keep this classifier's values.

        Raises:
            StateError: if families, features or transforms differ.
            UnsupportedError: if the family cannot be merged.
        """
        if not isinstance(other, DirichletClassifier):
            raise StateError("a DirichletClassifier", type(other).__name__, "Pass a classifier.")
        mine, theirs = (one._class_sums("a family whose streams merge") for one in (self, other))
        known = self.classes + unseen(other.classes, self.classes)
        streams = [copy.deepcopy(one) for one in mine]
        streams += [emptied(mine[0]) for _ in known[len(mine) :]]
        for label, one in zip(other.classes, theirs, strict=True):
            streams[known.index(label)].merge(one)
        seen = {label: one.num_observed for label, one in zip(known, streams, strict=True)}
        self._become(self._combined(streams), streams, seen)
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
        if type(num_samples) is not int or num_samples < 1:
            raise InputError("num_samples >= 1", repr(num_samples), "512 is plenty.")
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

    def _load(self, state: Mapping[str, Any], data: Mapping[str, Any] | None) -> None:
        """Load the sums of the classes, and their counts."""
        if data is not None:
            _, *streams = self._streams()
            seen = dict(zip(self.classes, data["counts"], strict=True))
            self._become(self.model, streams, seen)
            for k, one in enumerate(streams):
                one.load_state_dict(entries(state, f"class_streams.{k}."))


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
    arguments |= {"train_X": X, "train_Y": none, "train_Yvar": none}
    arguments |= {"covar_module": kernel, "mean_module": None}
    return type(one)(**arguments)


@all_or_nothing
def follow_features(one: StreamingGP, model: StreamingGP) -> None:
    """Replace a class stream's features by the model's present ones."""
    one._replace(state=one.state.along(model.state, one.num_observed))


def sum_of_regressions(streams: Sequence[StreamingGP], t: Tensor, d: Tensor) -> Any:
    """The state of one output with target ``t[k]`` and noise ``d[k]`` at all points of stream k."""
    largest = max(streams, key=lambda one: one.num_observed)
    state, count = largest._empty_state().along(largest.state, 0), 0
    for one, target, noise in zip(streams, t, d, strict=True):
        f = noise.rsqrt().reshape(1)  # outcomes (0 + t f) / f = t, noise 1 / f^2 = d
        part = one._rescale(one.state, -target * f, f)
        state = state.merged_at(part, count, one.num_observed)
        count += one.num_observed
    return state
