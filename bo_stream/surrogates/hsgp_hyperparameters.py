"""Hyperparameters of an HSGP: defaults, bounds, and their objective in closed form."""

from __future__ import annotations

from gpytorch.kernels import Kernel
from gpytorch.likelihoods import Likelihood
from gpytorch.means import ZeroMean
from torch import Size, Tensor

from bo_stream.base.fitting import ClosedForm, Coordinates, LogNormals, places_of
from bo_stream.base.options import CommonOptions
from bo_stream.base.streaming_gp import StreamingGP
from bo_stream.mathematics.evidence import OutputStatistics
from bo_stream.mathematics.hilbert_features import kernel as defaults
from bo_stream.mathematics.hilbert_features.basis import Basis
from bo_stream.mathematics.hilbert_features.closed_evidence import ClosedEvidence, Places, spectra
from bo_stream.mathematics.hilbert_features.density import Component, Components, components_of
from bo_stream.mathematics.hilbert_features.layouts import FEW_INPUTS

__all__ = ["closed_form", "hyperparameters", "keep_resolved"]


def hyperparameters(
    model: StreamingGP, common: CommonOptions, main_effects: bool | None
) -> tuple[Kernel, Likelihood]:
    """A surrogate's kernel and likelihood, with the defaults of few inputs and main effects.

    Args:
        model: The surrogate, with the defaults of all families.
        common: The options that it was given.
        main_effects: Its option.
    """
    batch, few = (
        Size([model.num_outputs] if model.num_outputs > 1 else []),
        model._dim <= FEW_INPUTS,
    )
    kernel, likelihood = model.covar_module, model.likelihood
    if few and common.get("likelihood") is None and model.noise_mode == "learned":
        likelihood = defaults.default_likelihood(batch)
    if common.get("covar_module") is None:
        kernel = defaults.default_kernel(model._dim, batch) if few else kernel
        main_effects = few and model._dim > 1 if main_effects is None else main_effects
    if main_effects and components_of(kernel).main is None:
        kernel = kernel + defaults.main_effects(batch)
    return kernel.to(model._interface), likelihood.to(model._interface)


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
