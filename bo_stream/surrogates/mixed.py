"""Kernels over numbers and categories, by family."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from botorch.models.kernels import CategoricalKernel
from gpytorch.constraints import GreaterThan
from gpytorch.kernels import Kernel, ScaleKernel
from torch import Size

from bo_stream.base.options import default_kernel
from bo_stream.errors import UnsupportedError

__all__ = ["WITH_CATEGORIES", "mixed_kernel", "options_with_categories", "with_categories"]

WITH_CATEGORIES = ("warped", "exact", "node_wiski", "online_sgpr", "svdgp", "cagp")
"""Families that model categories."""

LEAST = 1e-6
"""Smallest lengthscale of a category, as in BoTorch."""


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


def options_with_categories(family: str, dim: int, cat_dims: Sequence[int]) -> dict[str, Any]:
    """The options by which a family models categories: its own, or a new `mixed_kernel`.

    Args:
        family: Name of the family.
        dim: Number of inputs.
        cat_dims: Indices of the categories, at least one.

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
        return {"cat_dims": tuple(cat_dims)}
    return {"covar_module": mixed_kernel(dim, cat_dims)}


def with_categories(
    make: Callable[..., Any], family: str, dim: int, cat_dims: Sequence[int], *data: Any, **kw: Any
) -> Any:
    """What `make` builds of the data, with new `options_with_categories`."""
    return make(*data, **options_with_categories(family, dim, cat_dims), **kw)


def _categories(cat_dims: Sequence[int]) -> Kernel:
    constraint = GreaterThan(LEAST)
    return CategoricalKernel(
        ard_num_dims=len(cat_dims),
        active_dims=tuple(cat_dims),
        lengthscale_constraint=constraint,
    )
