"""What a fit of an HSGP needs: bounds of lengthscales, and its objective in closed form."""

from __future__ import annotations

import torch
from gpytorch.means import ZeroMean
from torch import Tensor

from bo_stream.base.fitting import ClosedForm, Coordinates, LogNormals, places_of
from bo_stream.base.streaming_gp import StreamingGP
from bo_stream.mathematics.hilbert_features.closed_evidence import ClosedEvidence, Places, spectra
from bo_stream.mathematics.hilbert_features.basis import Basis
from bo_stream.mathematics.hilbert_features.density import Component, Components
from bo_stream.mathematics.sufficient_statistics.evidence import OutputStatistics

__all__ = ["closed_form", "keep_resolved"]


def keep_resolved(
    components: Components, least: tuple[Tensor, Tensor], coordinates: Coordinates
) -> None:
    """Keep lengthscales to what the features resolve (MATHS 12.1).

    Args:
        components: The kernel's components.
        least: The shortest lengthscales, of functions of all inputs (``d``) and of main effects.
        coordinates: The coordinates of the fit.
    """
    joint = components.joint.base.raw_lengthscale
    own = least[0] if joint.shape[-1] > 1 else least[0].amax()
    coordinates.keep_above(joint, own)
    if components.main is not None:
        coordinates.keep_above(components.main.base.raw_lengthscale, least[1])


def closed_form(
    model: StreamingGP,
    components: Components,
    basis: Basis,
    statistics: list[OutputStatistics],
    coordinates: Coordinates,
    profile_mean: bool,
) -> ClosedForm | None:
    """The objective of a fit, evidence plus log priors, with its gradient.

    Returns:
        None where hyperparameters are fixed, priors are not log-normal, the mean is a coordinate,
        or the state is not on the CPU.
    """
    priors, outputs = LogNormals.of(model, coordinates), model.num_outputs
    fixed_mean = profile_mean or isinstance(model.mean_module, ZeroMean)
    parts = [(s, _places(c, coordinates, outputs)) for s, c in spectra(components, basis)]
    noise = None
    if model.noise_mode != "known":
        raw = model.likelihood.noise_covar.raw_noise
        noise = places_of(raw, coordinates, outputs, 1)
    free = [p for _, p in parts if p is not None]
    on_cpu = basis.alpha.device.type == "cpu"
    lost = len(free) < len(parts) or (noise is None and model.noise_mode != "known")
    if priors is None or not fixed_mean or lost or not on_cpu:
        return None
    origin = model.state.origin
    mean = model._prior_mean().detach() - origin
    own = [(spectrum, p) for (spectrum, _), p in zip(parts, free, strict=True)]
    evidence = ClosedEvidence(statistics, own, noise, mean, profile_mean)

    def objective(u: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        value, gradient, means = evidence(u)
        value = priors.add(u, value, gradient)
        return value, gradient, means + origin if profile_mean else None

    return objective


def _places(part: Component, coordinates: Coordinates, outputs: int) -> Places | None:
    """Where a component's hyperparameters are; None if some are fixed."""
    raw = part.base.raw_lengthscale
    lengths = places_of(raw, coordinates, outputs, raw.shape[-1])
    found = [places_of(p, coordinates, outputs, 1) for p in part.scale_parameters]
    scales = [place for place in found if place is not None]
    if lengths is None or len(scales) < len(found):
        return None
    return Places(lengths, scales)
