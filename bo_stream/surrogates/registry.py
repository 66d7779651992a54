"""Surrogates by name, for loops and configurations, also over numbers and categories."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, cast

from botorch.models.kernels import CategoricalKernel
from gpytorch.constraints import GreaterThan
from gpytorch.kernels import Kernel, ScaleKernel
from torch import Size, Tensor

from bo_stream.base.options import default_kernel
from bo_stream.base.streaming_gp import StreamingGP
from bo_stream.base.units import bounds_for, input_transform_for
from bo_stream.errors import InputError, OptionError, UnsupportedError
from bo_stream.surrogates.cagp import CaGP
from bo_stream.surrogates.exact import ExactGP
from bo_stream.surrogates.hsgp import HSGP
from bo_stream.surrogates.online_sgpr import SVDGP, OnlineSGPR
from bo_stream.surrogates.projected_wiski import ProjectedWISKI
from bo_stream.surrogates.trust_region import TrustRegionGP
from bo_stream.surrogates.warped import WarpedGP
from bo_stream.surrogates.wiski import WISKI, NodeWISKI

__all__ = [
    "FAMILIES",
    "WITH_CATEGORIES",
    "family_named",
    "in_loops",
    "mixed_kernel",
    "register_surrogate",
    "surrogate",
    "with_categories",
]

FAMILIES: dict[str, Callable[..., StreamingGP]] = {
    "wiski": WISKI,
    "projected_wiski": ProjectedWISKI,
    "hsgp": HSGP,
    "node_wiski": NodeWISKI,
    "cagp": CaGP,
    "exact": ExactGP,
    "online_sgpr": OnlineSGPR,
    "svdgp": SVDGP,
    "warped": WarpedGP,
    "trust_region": TrustRegionGP,
}
OURS = frozenset(FAMILIES)
"""Names of the families of this package."""
WITH_CATEGORIES = ("warped", "exact", "node_wiski", "online_sgpr", "svdgp", "cagp")
"""Families that model categories."""
LEAST = 1e-6
"""Smallest lengthscale of a category, as in BoTorch."""


def surrogate(
    name: str,
    train_X: Tensor,
    train_Y: Tensor,
    train_Yvar: Tensor | None = None,
    *,
    bounds: Tensor | Literal["unit"] | None,
    **kw: Any,
) -> StreamingGP:
    """Build a surrogate by the name of its family.

    Args:
        name: ``wiski``, ``projected_wiski``, ``hsgp``, ``node_wiski``, ``cagp``, ``exact``,
            ``online_sgpr``, ``svdgp``, ``warped`` or ``trust_region``.
        train_X: ``n x d`` raw inputs; ``n = 0`` is allowed.
        train_Y: ``n x m`` raw outcomes.
        train_Yvar: ``n x m`` raw noise variances, or None to learn the noise.
        bounds: ``2 x d`` raw bounds, as given to `optimize_acqf`, or ``"unit"``: the bounds that
            the input transform maps to the unit cube. None only for a WISKI with explicit ``grid``.
        kw: Options shared by all families (``covar_module``, ``mean_module``, ``likelihood``,
            ``input_transform``, ``outcome_transform``), and the family's own.

    Returns:
        The surrogate.

    Raises:
        InputError: If the name is unknown. The family may raise further errors.

    Example:
        >>> import torch
        >>> X = torch.rand(20, 2, dtype=torch.double)
        >>> bounds = torch.tensor([[0.0, 0.0], [1.0, 1.0]])
        >>> surrogate("wiski", X, X.sum(-1, keepdim=True), bounds=bounds).num_observed
        20
    """
    return family_named(name, dim=0)(train_X, train_Y, train_Yvar, bounds=bounds, **kw)


def register_surrogate(name: str, family: type[StreamingGP]) -> None:
    """Give a family of your own a name, by which campaigns, configurations and loops build it.

    A program that resumes a campaign with this surrogate has to register it first.

    Args:
        name: A name that no family of this package has. One that was registered before is replaced.
        family: The class.

    Raises:
        InputError: for a name of this package, or anything but a class of surrogates.

    Example:
        >>> from bo_stream import ExactGP
        >>> class SmoothGP(ExactGP):
        ...     pass
        >>> register_surrogate("smooth", SmoothGP)
    """
    if not (isinstance(family, type) and issubclass(family, StreamingGP)):
        raise InputError("a subclass of StreamingGP", repr(family), "Derive the class from it.")
    if name in OURS:
        raise InputError("a name that no family has", repr(name), "Choose another name.")
    FAMILIES[name] = family


def family_named(family: Any, dim: int) -> Callable[..., StreamingGP]:
    """A family by its name, or as it is given.

    Args:
        family: A name, a class, or None for ``wiski`` with up to 3 inputs, else ``hsgp``.
        dim: Number of inputs.

    Raises:
        InputError: for anything else.
    """
    name = ("wiski" if dim <= 3 else "hsgp") if family is None else family
    found = FAMILIES.get(name) if isinstance(name, str) else name
    if not callable(found):
        raise InputError(
            f"a family, or one of the names {', '.join(FAMILIES)}", repr(name), "Choose one."
        )
    return cast("Callable[..., StreamingGP]", found)


def for_targets(
    family: Callable[..., StreamingGP],
    X: Tensor,
    taken: Sequence[str],
    input_transform: Any,
    options: Mapping[str, Any],
) -> StreamingGP:
    """An empty surrogate of one output and known noise, whose targets another model chooses.

    Args:
        family: The family.
        X: ``n x d`` raw points, from which an input transform may be learned.
        taken: Names of options that the other model determines.
        input_transform: As for the family.
        options: Its other options.

    Raises:
        OptionError: for an option that is taken.
    """
    refused = ", ".join(sorted(set(taken) & set(options)))
    if refused:
        raise OptionError("options that outcomes do not determine", refused, "Leave them out.")
    X = X.detach()
    bounds, none = bounds_for(options["bounds"], input_transform, X), X.new_empty(0, 1)
    inputs = input_transform_for(input_transform, X, bounds)
    frame = {"bounds": bounds, "input_transform": inputs, "outcome_transform": None}
    return family(X[:0], none, none, **{**options, **frame})


def in_loops(name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """A family's options with defaults suited to loops, in which data keep arriving.

    Args:
        name: Name of the family.
        options: The given options.
    """
    follows = name == "wiski" and not {"grid", "grid_size"} & set(options)
    return {**options, "grid_size": "auto"} if follows else dict(options)


def mixed_kernel(dim: int, cat_dims: Sequence[int]) -> Kernel:
    """A new kernel over inputs some of which are categories.

    As in BoTorch's `MixedSingleTaskGP` it is the sum and the product of the default kernel over
    the other inputs and of a `CategoricalKernel`.

    Args:
        dim: Number of inputs.
        cat_dims: Indices of the categories, at least one.
    """
    numeric = tuple(i for i in range(dim) if i not in cat_dims)
    if not numeric:
        return ScaleKernel(_categories(cat_dims))
    sums, products = (default_kernel(len(numeric), Size(), numeric).base_kernel for _ in range(2))
    total = ScaleKernel(sums + ScaleKernel(_categories(cat_dims)))
    return total + ScaleKernel(products * _categories(cat_dims))


def with_categories(
    make: Callable[..., Any], family: str, dim: int, cat_dims: Sequence[int], *data: Any, **kw: Any
) -> Any:
    """What ``make`` builds of the data, with the options by which a family models categories: its
    own, or a new `mixed_kernel`.

    Args:
        make: Called with the data and options.
        family: Name of the family.
        dim: Number of inputs.
        cat_dims: Indices of the categories, at least one.
        data: The data.
        kw: Other options.

    Raises:
        UnsupportedError: for families whose kernel has a fixed form.
    """
    if family not in WITH_CATEGORIES:
        raise UnsupportedError(
            f"one of the surrogates {', '.join(WITH_CATEGORIES)} for categories",
            repr(family),
            "Use one of these, such as 'exact', or leave the surrogate out.",
        )
    if family == "warped":
        return make(*data, cat_dims=tuple(cat_dims), **kw)
    return make(*data, covar_module=mixed_kernel(dim, cat_dims), **kw)


def _categories(cat_dims: Sequence[int]) -> Kernel:
    return CategoricalKernel(
        ard_num_dims=len(cat_dims),
        active_dims=tuple(cat_dims),
        lengthscale_constraint=GreaterThan(LEAST),
    )
