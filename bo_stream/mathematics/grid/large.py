"""Evidence and posterior on a large grid with a product kernel [MATHS 2.7].

There are two ways, both of size far below that of the grid: through the eigenbasis of the kernel
without what is too small to matter, whatever the number of observations; and, where lengthscales
are so short that many eigenvectors matter, through the rows of W while these are held and fewer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import cast

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from bo_stream.errors import StateError, UnsupportedError
from bo_stream.mathematics.grid.compressed import Compressed
from bo_stream.mathematics.grid.data_space import ProductPrior, evidence_from_rows
from bo_stream.mathematics.grid.eigenbasis import Eigenbasis, Features
from bo_stream.mathematics.grid.evidence import of_weights
from bo_stream.mathematics.grid.kernel import is_product, product_factors, row_priors
from bo_stream.mathematics.grid.nodes import Grid
from bo_stream.mathematics.grid.posterior import stacked
from bo_stream.mathematics.grid.products import ProductRows, RowProcess
from bo_stream.mathematics.grid.reduced import MOST, InEigenbasis, chosen_basis, reduced_evidence
from bo_stream.mathematics.grid.state import BandState
from bo_stream.mathematics.posterior.features import FeatureProcess
from bo_stream.mathematics.posterior.process import PosteriorProcess
from bo_stream.mathematics.sufficient_statistics.evidence import attach

__all__ = ["Derived", "dropped_share", "large_evidence", "large_process"]

WIDER = 1e-2
"""Eigenvectors down to this share of the smallest kept are taken when A is put on products."""
CROSSOVER = 1.0
"""Rows are used while there are fewer than this many times the features,"""
FEW_ROWS = 400
"""and while there are fewer than this many."""


@dataclass(eq=False)
class Derived:
    """What was made of one state, whatever the hyperparameters: kept while the state stays.

    Attributes:
        totals: Of `Sums.totals`.
        compressed: A on products of eigenvectors, by output.
    """

    totals: tuple[Tensor, Tensor, Tensor] | None = None
    compressed: dict[int, Compressed] = field(default_factory=dict)


def large_evidence(
    state: BandState,
    kernel: Kernel,
    n: int,
    s2: Tensor,
    c: Tensor,
    profile_mean: bool,
    derived: Derived,
) -> tuple[Tensor, list[InEigenbasis] | list[ProductRows]]:
    """Log evidence summed over outputs, with closed-form gradients, and what the posterior needs.

    Args:
        state: The state.
        kernel: A product kernel, with or without one batch dimension of the outputs.
        n: Number of observations.
        s2: Noise scales, ``o``.
        c: Constant means, counted from the state's origin, ``o``.
        profile_mean: Take the best constant means instead.
        derived: What was made of this state before; added to.

    Raises:
        UnsupportedError: on another kernel.
        StateError: where there are too many eigenvectors and too many rows.
    """
    if not is_product(kernel):
        raise UnsupportedError(
            "a product of one-dimensional kernels on a large grid",
            type(kernel).__name__,
            "Build the surrogate anew for this kernel.",
        )
    grid, values, held = state.grid, list[Tensor](), n > 0 and state.at_hand(n)
    sources = product_factors(kernel, grid, state.b, len(state.b))
    with torch.no_grad():
        derived.totals = state.totals() if derived.totals is None else derived.totals
        stats = [state.statistics(i, derived.totals) for i in range(len(sources))]
        factors = [[t.detach() for t in own] for own in sources]
        bases = [
            chosen_basis(grid, own, noise, given.one)
            for own, noise, given in zip(factors, s2, stats, strict=True)
        ]
    r = max(basis.size for basis in bases)
    if held and n < max(CROSSOVER * r, FEW_ROWS):
        return _through_rows(state, kernel, n, s2, c, profile_mean)
    if r > MOST:
        raise _too_many(grid, r, n, held=held)
    made = list[InEigenbasis]()
    for i, basis in enumerate(bases):
        with torch.no_grad():
            gram = _gram(stats[i].A, basis, factors[i], i, derived)
            value, grads, part = reduced_evidence(basis, gram, stats[i], s2[i], c[i], profile_mean)
        made.append(part)
        values.append(attach(value, [s2[i], c[i], *sources[i]], grads))
    return torch.stack(values).sum(), made


def _through_rows(
    state: BandState, kernel: Kernel, n: int, s2: Tensor, c: Tensor, profile_mean: bool
) -> tuple[Tensor, list[ProductRows]]:
    """The same from the points, all of them held."""
    X, Y, R = state.opening.first(n)
    values, made = list[Tensor](), list[ProductRows]()
    for i, prior in enumerate(row_priors(kernel, state.grid, X, len(Y))):
        y, r = Y[i] - state.origin[i], R[min(i, len(R) - 1)]
        value, own = evidence_from_rows(prior, y, r, s2[i], c[i], profile_mean)
        values.append(value + of_weights(state, i, n, s2[i], r))
        seen = cast(ProductPrior, own.prior)
        made.append(ProductRows(own, seen, state.grid, X.clone(), s2[i].detach() * r))
    return torch.stack(values).sum(), made


def large_process(made: list[InEigenbasis] | list[ProductRows], mean: Tensor) -> PosteriorProcess:
    """The posterior at the hyperparameters of an evaluation.

    Args:
        made: What the evaluation left.
        mean: Constant prior means, ``o``.
    """
    rows = [part for part in made if isinstance(part, ProductRows)]
    if rows:
        return RowProcess.of(rows, mean)
    parts = [part for part in made if isinstance(part, InEigenbasis)]
    bases = [part.basis for part in parts]
    q = [part.made.q for part in parts]
    S = [part.made.Q_inv for part in parts]
    if all(basis.same_as(bases[0]) for basis in bases):
        return FeatureProcess(Features((bases[0],)), mean, torch.stack(q), stacked(S))
    own = torch.eye(len(S), dtype=mean.dtype, device=mean.device)  # the features of each output
    means = torch.stack([torch.cat([e * v for e, v in zip(row, q, strict=True)]) for row in own])
    covs = [torch.block_diag(*(e * M for e, M in zip(row, S, strict=True))) for row in own]
    return FeatureProcess(Features(tuple(bases)), mean, means, torch.stack(covs))


def dropped_share(made: Sequence[object]) -> float:
    """Largest share of the prior variance that the present form leaves out."""
    return max(
        (float(part.basis.dropped()) for part in made if isinstance(part, InEigenbasis)),
        default=0.0,
    )


def _too_many(grid: Grid, r: int, n: int, *, held: bool) -> StateError:
    return StateError(
        f"lengthscales for which at most {MOST} eigenvectors of the kernel on {grid.m} nodes "
        "matter, or fewer observations, all of them held",
        f"{r} eigenvectors, some {24 * r * r / 2**30:.1f} GiB an evaluation, and {n} observations"
        + ("" if held else ", not all held"),
        "Bound the lengthscales from below (at about two steps of the grid), take a coarser grid, "
        "or use NodeWISKI.",
    )


def _gram(
    A: Tensor, basis: Eigenbasis, factors: Sequence[Tensor], output: int, derived: Derived
) -> Tensor:
    """``F'A F`` for the features F of the basis, by what A was put on before where that serves."""
    compressed = derived.compressed.get(output)
    gram = None if compressed is None else compressed.gram(basis)
    if gram is None:
        wider = Eigenbasis.of(basis.grid, factors[0], factors[1:], WIDER * basis.share)
        derived.compressed[output] = compressed = Compressed.of(A, wider)
        gram = compressed.gram(basis)
    return torch.as_tensor(gram)
