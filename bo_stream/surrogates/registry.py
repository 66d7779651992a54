"""Surrogates by name, for loops and configurations."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, cast

from torch import Tensor

from bo_stream.base.streaming_gp import StreamingGP
from bo_stream.base.units import bounds_for, input_transform_for
from bo_stream.errors import InputError, OptionError
from bo_stream.surrogates.cagp import CaGP
from bo_stream.surrogates.exact import ExactGP
from bo_stream.surrogates.hsgp import HSGP
from bo_stream.surrogates.node_wiski import NodeWISKI
from bo_stream.surrogates.online_sgpr import OnlineSGPR
from bo_stream.surrogates.projected_wiski import ProjectedWISKI
from bo_stream.surrogates.svdgp import SVDGP
from bo_stream.surrogates.trust_region import TrustRegionGP
from bo_stream.surrogates.warped import WarpedGP
from bo_stream.surrogates.wiski import WISKI

__all__ = ["FAMILIES", "family_named", "in_loops", "surrogate"]

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
    if name not in FAMILIES:
        raise InputError(
            f"the name of a surrogate, one of {', '.join(FAMILIES)}",
            repr(name),
            "Choose one of these.",
        )
    return FAMILIES[name](train_X, train_Y, train_Yvar, bounds=bounds, **kw)


def family_named(family: Any, dim: int) -> Callable[..., StreamingGP]:
    """A family by its name, or as it is given.

    Args:
        family: A name, a class, or None for ``wiski`` with up to 3 inputs, else ``hsgp``.
        dim: Number of inputs.

    Raises:
        InputError: for anything else.
    """
    name = ("wiski" if dim <= 3 else "hsgp") if family is None else family
    if isinstance(name, str) and name in FAMILIES:
        return FAMILIES[name]
    if not callable(name):
        raise InputError(
            f"a family, or one of the names {', '.join(FAMILIES)}", repr(name), "Choose one."
        )
    return cast("Callable[..., StreamingGP]", name)


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
    own = {
        **options,
        "bounds": bounds,
        "input_transform": input_transform_for(input_transform, X, bounds),
        "outcome_transform": None,
    }
    return family(X[:0], none, none, **own)


def in_loops(name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """A family's options with defaults suited to loops, in which data keep arriving.

    Args:
        name: Name of the family.
        options: The given options.
    """
    if name == "wiski" and not {"grid", "grid_size"} & set(options):
        return {**options, "grid_size": "auto"}
    return dict(options)
