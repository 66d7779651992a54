"""What frameworks that build models anew ask of a surrogate: BoTorch, and Ax on top of it.

Ax holds a `SupervisedDataset`, builds a model of it at every step (`construct_inputs`, its own
transforms added), and for cross-validation builds others of parts of the data, into which it loads
the hyperparameters of the first.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from botorch.utils.datasets import SupervisedDataset
from torch import Tensor

from bo_stream.base.botorch_model import ProcessModel
from bo_stream.base.state import HeldState
from bo_stream.errors import UnsupportedError

__all__ = ["FromDataset"]

LEAST_NOISE = 1e-6
"""What exact evaluations (a variance of zero) are taken for, in units of the outcomes' variance:
gpytorch's floor for standardised outcomes."""


class FromDataset(HeldState, ProcessModel):
    """A surrogate that BoTorch and Ax can build of a data set."""

    needs_bounds: ClassVar[bool] = False
    """Whether the family must know the box its inputs come from."""
    _loads_data: bool

    @classmethod
    def construct_inputs(cls, training_data: SupervisedDataset, **options: Any) -> dict[str, Any]:
        """The constructor's arguments, from a data set; Ax calls this.

        A family that needs bounds takes those of the unit cube, where BoTorch expects a model's
        inputs to be after its input transform; in Ax these are the bounds of the search space,
        raw. Bounds of the unit cube among the options mean the same. Variances of zero, by which Ax
        says that an evaluation is exact, get gpytorch's floor. A surrogate built from this loads
        hyperparameters, not data, from a `state_dict`: Ax cross-validates by that.

        Args:
            training_data: Points, outcomes, and noise variances or None.
            options: The constructor's other arguments (in Ax: ``model_options``).

        Raises:
            UnsupportedError: on what a search space of Ax has and no constructor here takes:
                ``categorical_features``, ``fidelity_features``, and options misspelt.
        """
        unknown = sorted(set(options) - set(inspect.signature(cls).parameters))
        if unknown:
            raise UnsupportedError(
                f"options of {cls.__name__}, and a search space of plain numbers",
                ", ".join(unknown),
                "Check the spelling; encode categories as numbers (in Ax, by its transforms).",
            )
        inputs: dict[str, Any] = {**super().construct_inputs(training_data), "loads_data": False}
        if "train_Yvar" in inputs:
            inputs["train_Yvar"] = _with_floor(inputs["train_Yvar"], inputs["train_Y"])
        given = options.get("bounds")
        unknown_box = cls.needs_bounds and given is None and options.get("grid") is None
        if unknown_box or _is_unit_cube(given):
            options = {**options, "bounds": "unit"}
        return {**inputs, **options}

    def load_state_dict(  # type: ignore[override]
        self,
        state_dict: Mapping[str, Any],
        strict: bool = True,
        keep_transforms: bool = True,
        assign: bool = False,
    ) -> Any:
        """Restore state, hyperparameters and transforms: whole, or not at all.

        A standardisation and tracked incumbents that the saved state has come with it, unless the
        constructor was told otherwise. Built with ``loads_data=False``, the surrogate keeps its
        data and transforms, and takes hyperparameters only.

        Raises:
            StateError: if class, version, layout, kernel, keys, shapes or values do not fit this
                surrogate.
        """
        if not self._loads_data:
            own = {k: v for k, v in self.state_dict().items() if self._is_of_data(k)}
            others = {k: v for k, v in state_dict.items() if not self._is_of_data(k)}
            state_dict = {**others, **own}
        return super().load_state_dict(state_dict, strict, keep_transforms, assign)

    def _is_of_data(self, name: str) -> bool:
        """Whether an entry of a `state_dict` comes from data, and not from a fit."""
        transforms = ("input_transform.", "outcome_transform.")
        return name in self._state or name == "bounds" or name.startswith(transforms)


def _is_unit_cube(bounds: Any) -> bool:
    if not isinstance(bounds, Tensor | list | tuple):
        return False
    value = torch.as_tensor(bounds, dtype=torch.float64)
    rows = value.unbind() if value.ndim == 2 else ()
    return len(rows) == 2 and not bool(rows[0].any()) and bool((rows[1] == 1).all())


def _with_floor(Yvar: Tensor, Y: Tensor) -> Tensor:
    """Variances of zero replaced by the floor."""
    scale = Y.var(0) if len(Y) > 1 else torch.zeros_like(Y[:1].sum(0))
    scale = torch.where(scale > 0, scale, torch.ones_like(scale))
    return torch.where(Yvar == 0, LEAST_NOISE * scale, Yvar)
