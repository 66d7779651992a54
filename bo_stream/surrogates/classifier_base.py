"""The state of a classifier: a surrogate with an output per class, and sums for each class."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Self, cast

import torch
from gpytorch.kernels import Kernel
from torch import Tensor, nn

from bo_stream.base import checkpoint
from bo_stream.base.composite import CompositeModel, combine, empty_like, target_free_stream
from bo_stream.base.gaussian_model import GaussianModel
from bo_stream.base.stream import all_or_nothing
from bo_stream.base.streaming_gp import StreamingGP
from bo_stream.errors import StateError, UnsupportedError
from bo_stream.mathematics.classification.class_counts import Seen, read_settings, settings_of
from bo_stream.mathematics.classification.label_targets import LabelTargets
from bo_stream.mathematics.classification.labels import Label
from bo_stream.mathematics.classification.latent import LatentClasses
from bo_stream.mathematics.lasting import lasting

__all__ = ["CountedClasses"]


class CountedClasses(CompositeModel, LatentClasses):
    """A surrogate with an output per class and, for additive families, sums for each class.

    All parts share one lock and change together.

    Attributes:
        model: The surrogate.
        class_streams: A target-free stream with the points of each class
            (`bo_stream.base.composite`); empty for other families.
    """

    class_streams: nn.ModuleList

    def _hold(
        self, model: StreamingGP, streams: Sequence[Any], seen: Seen, pairs: LabelTargets
    ) -> None:
        """Set the parts."""
        self.model, self.class_streams = model, nn.ModuleList(streams)
        self._share_lock()
        self._classes, self._seen, self._pairs = list(seen), seen, pairs

    @all_or_nothing
    def _become(
        self, model: StreamingGP, streams: Sequence[Any], seen: Seen, pairs: LabelTargets
    ) -> None:
        """Replace the parts; on failure the old ones are restored."""
        before = (self.model, self._streams_of_classes(), self._seen, self._pairs)
        self._lock.on_failure(partial(self._hold, *before))
        self._hold(model, streams, seen, pairs)

    @property
    def class_counts(self) -> dict[Label, int]:
        """Number of labels absorbed for each class."""
        return dict(self._seen)

    def log_evidence(self) -> Tensor:
        """The log evidence of the transformed labels, summed over classes, 0-dim."""
        return self.model.log_evidence()

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

    def believing(self, X: Tensor) -> GaussianModel:
        """The latent functions given labels with unchanged means at ``q x d`` raw pending points.

        Variances shrink by a label's expected precision.
        """
        with torch.no_grad():
            noise = self._pairs.expected_noise(self.predict_proba(X))
            return self.model.condition_on_observations(X, self.latent(X)[0], noise)

    # -- saving ----------------------------------------------------------------------------------

    def _header(self) -> dict[str, Any]:
        return {"class": type(self).__name__, **settings_of(self._seen, self._pairs)}

    @lasting
    def load_state_dict(
        self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False
    ) -> Any:
        """Load hyperparameters and, if it has no data, everything; on an error nothing changes.

        As in `StreamingGP.load_state_dict`; classes and ``alpha_epsilon`` count as data. A
        classifier that has data takes hyperparameters of the same classes in the same order.

        Raises:
            StateError: if the saved state does not match this classifier.
        """
        model_state = {k[6:]: v for k, v in state_dict.items() if k.startswith("model.")}
        if checkpoint.EXTRA not in state_dict and not strict:
            return self.model.load_state_dict(model_state, strict)
        header = checkpoint.unpacked(state_dict.get(checkpoint.EXTRA)) or {}
        if header.get("class") != type(self).__name__:
            raise StateError(f"the state of a {type(self).__name__}", repr(header), "Load its own.")
        seen, pairs = read_settings(header)
        known = list(seen)
        if self.num_observed and known == self._classes:
            return self.model.load_state_dict(model_state, strict)
        model, streams = copy.deepcopy(self.model), copy.deepcopy(self._streams_of_classes())
        if known != self._classes and streams and not self.num_observed:
            streams = [target_free_stream(model, self._kernel()) for _ in known]
            model = empty_like(model, len(known), self._kernel())
        elif known != self._classes:
            remedy = "Build it with these as `classes`."
            raise StateError(f"classes {self._classes}", f"{known}", remedy)
        for prefix, part in [("model.", model), *_numbered(streams)]:
            start = len(prefix)
            own = {k[start:]: v for k, v in state_dict.items() if k.startswith(prefix)}
            part.load_state_dict(own, strict, assign=assign)
        self._become(model, streams, seen, pairs)

    def _arguments(self) -> dict[str, Any]:
        return {**self._shared_arguments("train_X"), "train_y": [], "classes": self._classes}

    # -- helpers ---------------------------------------------------------------------------------

    def _streams(self) -> list[StreamingGP]:
        return [self.model, *self._streams_of_classes()]

    def _streams_of_classes(self) -> list[StreamingGP]:
        return cast("list[StreamingGP]", list(self.class_streams))

    def _kernel(self) -> Kernel:
        """The initial kernel of every class."""
        return self._streams_of_classes()[0].covar_module

    def _need_class_sums(self, what: str) -> None:
        """Refuse an operation that only families of additive statistics support."""
        if not len(self.class_streams):
            raise UnsupportedError(
                f"{what} for {type(self.model).__name__}",
                "something else",
                "Give `classes` when building it, or use WISKI or HSGP.",
            )

    def _combined(
        self, streams: Sequence[StreamingGP], outputs: int, pairs: LabelTargets
    ) -> StreamingGP:
        """A surrogate built from the points of each class, with the current hyperparameters."""
        model = empty_like(self.model, outputs, self._kernel())
        before = self.model._prior_mean().detach()
        means = before.new_full((outputs,), pairs.other.target)
        means[: len(before)] = pairs.moved(before, self._pairs)
        for name, parameter in model.named_parameters():
            old = self.model.get_parameter(name)
            rows = parameter.data.view(outputs, -1)
            rows[: len(before)] = old.data.reshape(len(before), -1)
            parameter.requires_grad_(old.requires_grad)
        model._set_prior_mean(means)
        own = torch.eye(outputs, dtype=torch.bool, device=means.device)
        combine(model, streams, *pairs.regressions(own, means))
        return model


def _numbered(parts: Any) -> list[tuple[str, Any]]:
    return [(f"class_streams.{k}.", part) for k, part in enumerate(parts)]
