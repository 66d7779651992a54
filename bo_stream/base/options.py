"""Options of the constructors, and policies by name."""

from __future__ import annotations

import copy
import inspect
import re
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import wraps
from importlib import import_module
from typing import Any, Literal, TypedDict, cast, get_type_hints

import numpy as np
import torch
from botorch.models.transforms.input import InputTransform
from botorch.models.transforms.outcome import OutcomeTransform
from botorch.models.utils.gpytorch_modules import (
    get_covar_module_with_dim_scaled_prior,
    get_gaussian_likelihood_with_lognormal_prior,
)
from botorch.utils.types import DEFAULT
from gpytorch.kernels import Kernel, ScaleKernel
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood, GaussianLikelihood, Likelihood
from gpytorch.means import ConstantMean, Mean, ZeroMean
from torch import Size, Tensor, nn

from bo_stream.errors import InputError, OptionError, UnsupportedError

__all__ = [
    "LEAST_NOISE",
    "CommonOptions",
    "default_kernel",
    "from_plain",
    "is_plain",
    "mean_for",
    "noise_model",
    "own_options",
    "publish_signature",
    "to_plain",
    "with_defaults",
    "with_floor",
]


class CommonOptions(TypedDict, total=False):
    """Options of every family's constructor.

    They are accepted by position too, in this order, before the family's own options: Ax reads the
    names of a model's options from its positional arguments.

    Attributes:
        bounds: ``2 x d`` raw bounds, as given to `optimize_acqf`; points outside are refused.
            ``"unit"`` means the bounds that ``input_transform`` maps to the unit cube.
        covar_module: A gpytorch kernel (``batch_shape`` ``[m]`` for hyperparameters per output).
        mean_module: `ConstantMean` or `ZeroMean`.
        likelihood: A `GaussianLikelihood`.
        input_transform: A transform in evaluation mode is used unchanged; one in training mode is
            learned once from ``train_X``. It is copied. By default inputs are normalised to
            ``bounds``, if given; None disables the transform.
        outcome_transform: Likewise, learned from ``train_Y``. By default outcomes are standardised
            by the constructor's data; with fewer than two rows they are left unchanged, with a
            warning. None disables the transform.
        loads_data: Whether `load_state_dict` loads the data of a saved surrogate. By default it
            does if the surrogate has none; otherwise, and for False, it loads hyperparameters only,
            as BoTorch's models do. True replaces the data.
    """

    bounds: Tensor | Literal["unit"] | None
    covar_module: Kernel | None
    mean_module: Mean | None
    likelihood: Likelihood | None
    input_transform: InputTransform | None
    outcome_transform: OutcomeTransform | None
    loads_data: bool | None


_DEFAULTS: dict[str, Any] = {
    **dict.fromkeys(CommonOptions.__annotations__),
    "input_transform": DEFAULT,
    "outcome_transform": DEFAULT,
}


def with_defaults(options: CommonOptions) -> dict[str, Any]:
    """The common options, with defaults for those left out.

    Modules that were built in inference mode are copied, because their parameters cannot be fitted.
    """
    given = {**_DEFAULTS, **options}
    for name, module in given.items():
        if isinstance(module, nn.Module) and any(p.is_inference() for p in module.parameters()):
            given[name] = copy.deepcopy(module)
    return given


def publish_signature(family: type) -> None:
    """Let a constructor ``(self, train_X, ..., *, own, **common)`` take options by position too.

    Data first, then the common options, then the family's own. The constructor raises an
    OptionError for arguments that do not fit.
    """
    init = vars(family).get("__init__")
    if init is None:
        return
    kinds, hints = inspect.Parameter, get_type_hints(CommonOptions)
    given = list(inspect.signature(init).parameters.values())
    data = [p for p in given if p.kind is kinds.POSITIONAL_OR_KEYWORD]
    common = [
        kinds(name, kinds.POSITIONAL_OR_KEYWORD, default=value, annotation=hints[name])
        for name, value in _DEFAULTS.items()
    ]
    own = [p for p in given if p.kind is kinds.KEYWORD_ONLY and p.name not in _DEFAULTS]
    options = [*common, *(p.replace(kind=kinds.POSITIONAL_OR_KEYWORD) for p in own)]
    signature = inspect.Signature([*data, *options])

    @wraps(init)
    def construct(*args: Any, **keywords: Any) -> None:
        try:
            given = signature.bind(*args, **keywords).arguments
        except TypeError as error:
            known = ", ".join([*signature.parameters][1:])
            got = str(error).removeprefix("got ")
            raise OptionError(
                f"options of {family.__name__}: {known}", got, "Check number and spelling."
            ) from error
        init(**given)

    cast(Any, construct).__signature__ = signature
    kind = cast(Any, family)
    kind.__init__, kind.__signature__ = construct, inspect.Signature([*data[1:], *options])


def own_options(family: type) -> list[str]:
    """Names of a family's own options, without data and common options."""
    data = ("self", "train_X", "train_Y", "train_Yvar")
    return [n for n in inspect.signature(family).parameters if n not in (*data, *_DEFAULTS)]


LEAST_NOISE = 1e-6
"""Noise variance substituted for exact evaluations (variance zero), relative to the outcomes'
variance: gpytorch's floor for standardised outcomes."""


def with_floor(Yvar: Tensor, Y: Tensor) -> Tensor:
    """Replace variances of zero by the floor."""
    scale = Y.var(0) if len(Y) > 1 else torch.zeros_like(Y[:1].sum(0))
    scale = torch.where(scale > 0, scale, torch.ones_like(scale))
    return torch.where(Yvar == 0, LEAST_NOISE * scale, Yvar)


def default_kernel(
    dim: int, batch_shape: Size, active_dims: tuple[int, ...] | None = None
) -> ScaleKernel:
    """`ScaleKernel` over an ARD RBF with BoTorch's dimension-scaled priors, per output.

    Args:
        dim: Number of inputs.
        batch_shape: Batch shape for several outputs.
        active_dims: Indices of the inputs to use; None: all.
    """
    base = get_covar_module_with_dim_scaled_prior(
        ard_num_dims=dim, batch_shape=batch_shape, active_dims=active_dims
    )
    return ScaleKernel(base, batch_shape=batch_shape)


def mean_for(mean: Mean | None, batch_shape: Size) -> Mean:
    """The given mean module if it is supported; a constant mean for None.

    Raises:
        UnsupportedError: for anything but a `ConstantMean` or a `ZeroMean`.
    """
    mean = mean or ConstantMean(batch_shape=batch_shape)
    if type(mean) not in (ConstantMean, ZeroMean):
        raise UnsupportedError(
            "a ConstantMean or a ZeroMean",
            type(mean).__name__,
            "Subtract other trends from Y before observing it.",
        )
    return mean


def noise_model(
    Yvar: Tensor | None, likelihood: Likelihood | None, batch_shape: Size
) -> tuple[str, Likelihood]:
    """The noise mode of a surrogate, and its likelihood: BoTorch's default for None.

    Returns:
        ``learned``, ``known``, or ``scaled`` (known up to a learned scale).

    Raises:
        UnsupportedError: for a likelihood that no surrogate supports.
    """
    if likelihood is not None and not isinstance(likelihood, GaussianLikelihood):
        raise UnsupportedError(
            "a GaussianLikelihood",
            type(likelihood).__name__,
            "Give known noise as train_Yvar, with likelihood=GaussianLikelihood() if its scale is "
            "to be learned.",
        )
    if Yvar is not None and likelihood is None:
        return "known", FixedNoiseGaussianLikelihood(noise=torch.ones(*batch_shape, 1))
    default = get_gaussian_likelihood_with_lognormal_prior
    return "learned" if Yvar is None else "scaled", likelihood or default(batch_shape)


PACKAGES = {
    "growth": "bo_stream.growth",
    "actions": "bo_stream.actions",
    "likelihood": "bo_stream.likelihoods",
}
"""Modules with the policies of an option."""


def from_plain(option: str, policy: Any) -> Any:
    """A policy from its name and options; anything else, and other options, as they are.

    Args:
        option: Name of the option: ``growth``, ``actions`` or ``likelihood``.
        policy: For example ``{"name": "oips", "rho": 0.9}``, or ``"vips"`` for one without options.
            A policy among the options is described likewise, and tensors are lists. Names may also
            be those of the classes.

    Raises:
        InputError: for an unknown name or option.
    """
    if option not in PACKAGES or not isinstance(policy, str | Mapping):
        return policy
    rest = {"name": policy} if isinstance(policy, str) else dict(policy)
    kinds, name = _policies(option), str(rest.pop("name", None))
    kind = kinds.get(_plain_name(name))
    if kind is None:
        raise InputError(f"the name of {option}, one of {', '.join(kinds)}", repr(name), "Choose.")
    inner = {key: from_plain(option, one) for key, one in rest.items() if isinstance(one, Mapping)}
    try:
        return kind(**{**rest, **inner})
    except TypeError as error:
        known = ", ".join(inspect.signature(kind).parameters)
        got = str(error).removeprefix(f"{kind.__name__}.__init__() ").removeprefix("got ")
        raise InputError(f"the options {known} of {name!r}", got, "Correct it.") from error


def to_plain(value: Any) -> Any:
    """An option's value as lists, numbers and strings, and policies as `from_plain` reads them.

    What is none of these, such as a policy of your own, stays as it is; see `is_plain`.
    """
    if isinstance(value, Tensor | np.generic):
        return value.tolist()
    if isinstance(value, list | tuple):
        return [to_plain(each) for each in value]
    policies = {kind: name for option in PACKAGES for name, kind in _policies(option).items()}
    if type(value) not in policies:
        return value
    plain = {"name": policies[type(value)]}
    for field in fields(value):
        part = getattr(value, field.name)
        if field.init and (isinstance(part, Tensor) or part != field.default):
            plain[field.name] = to_plain(part)
    return plain if is_plain(plain) else value


def is_plain(value: Any) -> bool:
    """Whether a value is made of plain containers, numbers, strings and tensors."""
    if isinstance(value, list | Mapping):
        return all(map(is_plain, value.values() if isinstance(value, Mapping) else value))
    return value is None or isinstance(value, Tensor | bool | int | float | str)


def _policies(option: str) -> dict[str, type[Any]]:
    """The classes of policies, by their plain names."""
    package = import_module(PACKAGES[option])  # not at the top: it imports this package
    found = [getattr(package, name) for name in package.__all__]
    made = [one for one in found if isinstance(one, type) and is_dataclass(one)]
    abstract = ("Selection", "Actions", "Likelihood")
    return {_plain_name(one.__name__): one for one in made if one.__name__ not in abstract}


def _plain_name(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()
