"""The evidence and its gradient in the logarithms of the hyperparameters, in closed form."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from bo_stream.mathematics.evidence import OutputStatistics
from bo_stream.mathematics.hilbert_features.basis import Basis
from bo_stream.mathematics.hilbert_features.density import Component, Components, Spectrum
from bo_stream.mathematics.hilbert_features.evidence import factorise

__all__ = ["ClosedEvidence", "Places"]


@dataclass(frozen=True)
class Places:
    """Where the logarithms of a component's hyperparameters are in a vector.

    Attributes:
        lengthscales: ``o x d``, or ``o x 1`` for main effects.
        scales: Of each scale, ``o x 1``.
    """

    lengthscales: Tensor
    scales: list[Tensor]


@dataclass(frozen=True)
class ClosedEvidence:
    """Log evidence summed over outputs, as a function of one vector.

    Attributes:
        stats: The statistics of each output, on the CPU.
        parts: A spectrum for each component, in the order of the features, and its places.
        noise: Places of the noise scales, ``o x 1``; None for known noise.
        mean: Constant means, counted from the statistics' origin, ``o``.
        profile_mean: Take the optimal constant means instead.
    """

    stats: Sequence[OutputStatistics]
    parts: list[tuple[Spectrum, Places]]
    noise: Tensor | None
    mean: Tensor
    profile_mean: bool

    @torch.no_grad()
    def __call__(self, u: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Value, gradient and means: one Cholesky factor and one triangular inverse an output."""
        value, gradient, means = u.new_zeros(()), torch.zeros_like(u), []
        for i, (stats, c) in enumerate(zip(self.stats, self.mean, strict=True)):
            s2 = u.new_ones(()) if self.noise is None else u[self.noise[i, 0]].exp()
            logs = [spectrum.logs(*places_in(u, p, i)) for spectrum, p in self.parts]
            made = factorise(stats, torch.cat(logs), s2, c, self.profile_mean)
            d_s2, _, d_logs = made.gradients()
            value = value + made.value()
            means.append(made.mean)
            if self.noise is not None:
                gradient[self.noise[i, 0]] += d_s2 * s2
            pieces = d_logs.split([len(own) for own in logs])
            for (spectrum, p), own in zip(self.parts, pieces, strict=True):
                d_lengths, d_scale = spectrum.pull(places_in(u, p, i)[0], own)
                gradient.index_add_(0, p.lengthscales[i], d_lengths)
                for scale in p.scales:
                    gradient[scale[i, 0]] += d_scale
        return value, gradient, torch.stack(means)


def places_in(u: Tensor, places: Places, output: int) -> tuple[Tensor, Tensor]:
    """Logarithms of the lengthscales and of the variance of one output."""
    variance = u.new_zeros(())
    for scale in places.scales:
        variance = variance + u[scale[output, 0]]
    return u[places.lengthscales[output]], variance


def spectra(components: Components, basis: Basis) -> list[tuple[Spectrum, Component]]:
    """The components with their spectra, in the order of the features."""
    joint = (Spectrum.of_joint(components.joint, basis), components.joint)
    if components.main is None:
        return [joint]
    return [(Spectrum.of_main(components.main, basis), components.main), joint]
