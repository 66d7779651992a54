"""BoTorch's synthetic test functions as noisy maximisation problems on the unit cube.

The default noise levels are those of the WISKI study's Bayesian optimisation in 3-D [Stanton2021].

References:
    [Stanton2021] S. Stanton, W. J. Maddox, I. Delbridge, A. G. Wilson. Kernel Interpolation for
        Scalable Online Gaussian Processes. AISTATS 2021.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from botorch.test_functions import synthetic as tf
from torch import Tensor

_STUDY_NOISE_STD = {
    "levy": 10.0,
    "ackley": 4.0,
    "styblinskitang": 20.0,
    "rastrigin": 10.0,
    "griewank": 4.0,
    "michalewicz": 5.0,
}
_ANY_DIM: dict[str, Callable[..., tf.SyntheticTestFunction]] = {
    "ackley": tf.Ackley,
    "dixonprice": tf.DixonPrice,
    "griewank": tf.Griewank,
    "levy": tf.Levy,
    "michalewicz": tf.Michalewicz,
    "rastrigin": tf.Rastrigin,
    "rosenbrock": tf.Rosenbrock,
    "styblinskitang": tf.StyblinskiTang,
}
_FIXED_DIM: dict[str, tuple[Callable[..., tf.SyntheticTestFunction], int]] = {
    "beale": (tf.Beale, 2),
    "branin": (tf.Branin, 2),
    "bukin": (tf.Bukin, 2),
    "dropwave": (tf.DropWave, 2),
    "eggholder": (tf.EggHolder, 2),
    "holdertable": (tf.HolderTable, 2),
    "shekel": (tf.Shekel, 4),
    "sixhumpcamel": (tf.SixHumpCamel, 2),
    "threehumpcamel": (tf.ThreeHumpCamel, 2),
}
# Sums of one-dimensional terms whose published optimum is missing in most dimensions, or rounded.
_SEPARABLE = frozenset({"michalewicz", "styblinskitang"})
# Functions whose optimum is global, or remains optimal wherever the box is moved.
_MOVABLE = frozenset({*_ANY_DIM, "hartmann"})
_FURTHEST = 0.2
_MARGIN = 0.05
# Tolerance for the rounding of float32 candidates at the faces of the cube.
_CUBE_TOLERANCE = 1e-6


class SyntheticProblem:
    """A noisy function on the unit cube, to be maximised, with known noiseless values.

    Build one with :func:`synthetic`. Calling it draws observations; :meth:`evaluate_true` gives
    noiseless values for scoring.

    Attributes:
        name: The function's name, lower case.
        dim: The number ``d`` of inputs.
        noise_std: Standard deviation of the observation noise, in the function's own units.
        bounds: A ``2 x d`` tensor, zeros over ones, float64; as ``optimize_acqf`` takes it.
        optimal_value: The maximum of the noiseless function over the cube.
        optimizers: A ``k x d`` tensor of known maximisers in the unit cube; ``k`` may be 0.

    Example:
        >>> import torch
        >>> problem = synthetic("levy", seed=0)
        >>> X = torch.full((5, 3), 0.55, dtype=torch.float64)  # Levy's optimum is at 1 in [-10, 10]
        >>> problem(X).shape, problem.noise_std
        (torch.Size([5, 1]), 10.0)
        >>> bool((problem.optimal_value - problem.evaluate_true(X)).abs().max() < 1e-12)
        True
    """

    def __init__(
        self,
        name: str,
        function: tf.SyntheticTestFunction,
        noise_std: float,
        seed: int | None,
        moved: int | None,
    ) -> None:
        self.name = name
        self.dim: int = function.dim
        self.noise_std = noise_std
        self.bounds = torch.stack([torch.zeros(self.dim), torch.ones(self.dim)]).double()
        self._function = function
        self._generator = None if seed is None else torch.Generator().manual_seed(seed)
        self.optimizers, self.optimal_value = self._known_optimum()
        if moved is not None:
            self._move(torch.Generator().manual_seed(moved))

    def __call__(self, X: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Observe the function with independent Gaussian noise of ``noise_std``.

        Args:
            X: A ``batch_shape x n x d`` tensor in the unit cube.
            generator: A CPU generator of the noise; by default the problem's own if it has a seed,
                else torch's global one. Noise is drawn on the CPU, so a seed gives the same noise
                on every device.

        Returns:
            A ``batch_shape x n x 1`` tensor of X's dtype and device.

        Raises:
            ValueError: If X has the wrong shape, or lies outside the unit cube.
        """
        f = self._evaluate(X)
        if self.noise_std > 0:
            source = self._generator if generator is None else generator
            f = f + self.noise_std * torch.randn(f.shape, generator=source, dtype=f.dtype).to(f)
        return f.to(X)

    def evaluate_true(self, X: Tensor) -> Tensor:
        """The noiseless function.

        Args:
            X: A ``batch_shape x n x d`` tensor in the unit cube.

        Returns:
            A ``batch_shape x n x 1`` tensor of X's dtype and device; computed in float64.

        Raises:
            ValueError: If X has the wrong shape, or lies outside the unit cube.
        """
        return self._evaluate(X).to(X)

    def __repr__(self) -> str:
        return f"SyntheticProblem({self.name!r}, dim={self.dim}, noise_std={self.noise_std:g})"

    def _evaluate(self, X: Tensor) -> Tensor:
        """Noiseless values, ``batch_shape x n x 1``, in float64 on X's device."""
        self._check(X)
        self._function.to(X.device)
        lower, upper = self._function.get_buffer("bounds").unbind()
        # lerp is exact at both ends, so the faces of the cube stay inside BoTorch's bounds
        raw = torch.lerp(lower, upper, X.double().clamp(0.0, 1.0))
        return -self._function.evaluate_true(raw).unsqueeze(-1)

    def _check(self, X: Tensor) -> None:
        if X.ndim < 2 or X.shape[-1] != self.dim:
            raise ValueError(
                f"Expected X of shape batch_shape x n x {self.dim}, got {tuple(X.shape)}. "
                "A single point is a 1 x d tensor: use X.unsqueeze(0)."
            )
        if not X.is_floating_point():
            raise ValueError(f"Expected floating-point X, got {X.dtype}. Convert it: X.double().")
        inside = (X >= -_CUBE_TOLERANCE) & (X <= 1.0 + _CUBE_TOLERANCE)
        if not bool(inside.all()):
            worst = X[~inside.all(dim=-1)][0].tolist()
            raise ValueError(
                f"Expected X in the unit cube [0, 1]^{self.dim}, got the point {worst}. "
                "Scale inputs first, for example with botorch.utils.transforms.normalize."
            )

    def _known_optimum(self) -> tuple[Tensor, float]:
        """Maximisers in the unit cube (``k x d``, possibly none) and the maximum.

        Published optima are rounded to a few digits. If a published optimiser attains a higher
        value, that value is used, so that regret is non-negative up to rounding.
        """
        if self.name in _SEPARABLE:
            return self._separable_optimum()
        published = -float(self._function.optimal_value)
        raw = getattr(self._function, "optimizers", None)
        if raw is None:
            return torch.empty(0, self.dim, dtype=torch.float64), published
        lower, upper = self._function.get_buffer("bounds").unbind()
        optimizers = (raw.to(lower) - lower) / (upper - lower)
        return optimizers, max(published, float(self._evaluate(optimizers).max()))

    def _move(self, generator: torch.Generator) -> None:
        """Move the box so that the first maximiser lies elsewhere in it."""
        best = self.optimizers[0]
        steps = _FURTHEST * (2.0 * torch.rand(self.dim, generator=generator).double() - 1.0)
        place = (best + steps).clamp(_MARGIN, 1.0 - _MARGIN)
        lower, upper = self._function.get_buffer("bounds").double()
        shift = (best - place) * (upper - lower)
        box = zip((lower + shift).tolist(), (upper + shift).tolist(), strict=True)
        build: Callable[..., tf.SyntheticTestFunction] = type(self._function)
        self._function = build(dim=self.dim, bounds=list(box))
        optimizers = self.optimizers + (place - best)
        self.optimizers = optimizers[((optimizers >= 0.0) & (optimizers <= 1.0)).all(-1)]

    def _separable_optimum(self) -> tuple[Tensor, float]:
        """The optimum of a sum of 1-D terms: each coordinate is searched with the others at 0.

        A grid of 4,001 nodes finds the basin of each coordinate; five zooms of 401 nodes polish it
        to about 1e-12 of the side. O(4,001 d) evaluations of d terms.
        """
        base = torch.zeros(self.dim, dtype=torch.float64)
        best = base.clone()
        for i in range(self.dim):
            centre, half_width, nodes = 0.5, 0.5, 4001
            for _ in range(6):
                line = torch.linspace(-half_width, half_width, nodes, dtype=torch.float64)
                line = (centre + line).clamp(0.0, 1.0)
                X = base.repeat(nodes, 1)
                X[:, i] = line
                centre = float(line[self._evaluate(X).argmax()])
                half_width, nodes = 2.0 * half_width / (nodes - 1), 401
            best[i] = centre
        optimizers = best.unsqueeze(0)
        return optimizers, float(self._evaluate(optimizers))


def synthetic(
    name: str,
    dim: int = 3,
    noise_std: float | None = None,
    *,
    seed: int | None = None,
    moved: int | None = None,
) -> SyntheticProblem:
    """A BoTorch test function, negated, on the unit cube, with Gaussian observation noise.

    Args:
        name: One of Ackley, DixonPrice, Griewank, Levy, Michalewicz, Rastrigin, Rosenbrock,
            StyblinskiTang (any ``dim``), Hartmann (3 or 6), Powell (multiples of 4), Shekel (4),
            Beale, Branin, Bukin, DropWave, EggHolder, HolderTable, SixHumpCamel and
            ThreeHumpCamel (2).
            Case, underscores, hyphens and spaces do not matter.
        dim: The number of inputs.
        noise_std: Standard deviation of the noise, in the function's units. By default the level
            of the WISKI study's 3-D problems, whatever ``dim`` is: Levy 10, Ackley 4,
            StyblinskiTang 20, Rastrigin 10, Griewank 4, Michalewicz 5; none (0) for the others.
        seed: Makes the noise repeatable. By default it comes from torch's global generator.
        moved: Seed of a shift of the box by up to a fifth of each side. Published optima lie at the
            centres of boxes and on nodes of grids, where some methods find them by luck. The
            maximum is unchanged and inside. For functions of any ``dim`` and Hartmann.

    Returns:
        The problem, a callable: ``n x d`` inputs to ``n x 1`` noisy values.

    Raises:
        ValueError: If the name is unknown, or ``dim``, ``noise_std`` or ``moved`` is invalid.
    """
    key = "".join(c for c in name.lower() if c not in "_- ")
    if isinstance(dim, bool) or not isinstance(dim, int) or dim < 1:
        raise ValueError(f"Expected dim to be a positive int, got {dim!r}. Pass for example dim=3.")
    if noise_std is None:
        noise_std = _STUDY_NOISE_STD.get(key, 0.0)
    if not (math.isfinite(noise_std) and noise_std >= 0):
        raise ValueError(
            f"Expected a finite noise_std >= 0, got {noise_std!r}. Pass noise_std=0.0 for no noise."
        )
    function = _function(name, key, dim)
    if moved is not None and key not in _MOVABLE:
        raise ValueError(
            f"Expected moved=None for {name}, whose optimum is known in its own box only, got "
            f"{moved!r}. Leave it out, or take one of {sorted(_MOVABLE)}."
        )
    return SyntheticProblem(key, function, float(noise_std), seed, moved)


def _function(name: str, key: str, dim: int) -> tf.SyntheticTestFunction:
    """BoTorch's test function by name, to be minimised, float64."""
    if key in _ANY_DIM:
        _require_dim(name, dim, dim >= (2 if key == "rosenbrock" else 1), "at least 2")
        return _ANY_DIM[key](dim=dim)
    if key in _FIXED_DIM:
        build, fixed = _FIXED_DIM[key]
        _require_dim(name, dim, dim == fixed, str(fixed))
        return build()
    if key == "hartmann":
        _require_dim(name, dim, dim in (3, 6), "3 or 6")
        return tf.Hartmann(dim=dim)
    if key == "powell":
        _require_dim(name, dim, dim % 4 == 0, "a multiple of 4")
        return tf.Powell(dim=dim)
    known = sorted([*_ANY_DIM, *_FIXED_DIM, "hartmann", "powell"])
    raise ValueError(f"Expected the name of a test function, got {name!r}. Use one of {known}.")


def _require_dim(name: str, dim: int, allowed: bool, expected: str) -> None:
    if not allowed:
        raise ValueError(f"{name} expected dim to be {expected}, got {dim}. Pass another dim=.")
