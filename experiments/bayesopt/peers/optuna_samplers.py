"""Optuna's samplers, through the ask and tell of a study in memory."""

import warnings
from abc import abstractmethod
from typing import Any, ClassVar

import torch
from torch import Tensor

from experiments.bayesopt.peers.peer import Peer, needed


class OptunaPeer(Peer):
    """A sampler of Optuna; recommends the best point observed, as Optuna's studies do.

    Trials of a batch are asked one after the other; those before are running then, and the samplers
    keep away from them. The initial design is added as trials that were completed.
    """

    packages: ClassVar[tuple[str, ...]] = ("optuna",)

    def __init__(self, bounds: Tensor, seed: int = 0, **sampler: Any) -> None:
        super().__init__(bounds, seed)
        self._optuna = needed("optuna")
        self._optuna.logging.set_verbosity(self._optuna.logging.ERROR)
        uniform = self._optuna.distributions.FloatDistribution
        self._space = {f"x{i}": uniform(*map(float, side)) for i, side in enumerate(self.bounds.T)}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # options that Optuna calls experimental
            chosen = self._sampler(seed, sampler)
            self._study = self._optuna.create_study(direction="maximize", sampler=chosen)
        self._running: list[Any] = []

    @abstractmethod
    def _sampler(self, seed: int, options: dict[str, Any]) -> Any:
        """The sampler."""

    def _propose(self, q: int) -> Tensor:
        for trial in self._running:
            self._study.tell(trial, state=self._optuna.trial.TrialState.FAIL)
        self._running = [self._study.ask(self._space) for _ in range(q)]
        return torch.stack([self._point(trial) for trial in self._running])

    def _learn(self, X: Tensor, Y: Tensor) -> None:
        for x, y in zip(X, Y[:, 0].tolist(), strict=True):
            found = (t for t in self._running if torch.equal(self._point(t), x))
            trial = next(found, None)
            if trial is None:
                params = dict(zip(self._space, x.tolist(), strict=True))
                made = self._optuna.trial.create_trial(
                    params=params, distributions=self._space, value=y
                )
                self._study.add_trial(made)
            else:
                self._running.remove(trial)
                self._study.tell(trial, y)

    def _point(self, trial: Any) -> Tensor:
        return self.bounds.new_tensor([trial.params[name] for name in self._space])


class OptunaTPE(OptunaPeer):
    """Tree-structured Parzen estimators, with Optuna's defaults and a constant liar in batches.

    Recommends the best point observed.
    """

    def _sampler(self, seed: int, options: dict[str, Any]) -> Any:
        return self._optuna.samplers.TPESampler(**{"seed": seed, "constant_liar": True, **options})


class OptunaGP(OptunaPeer):
    """Optuna's GP sampler: Matern-5/2, log expected improvement, fitted anew for every point asked.

    So its fits are in the seconds of asking. Recommends the best point observed: Optuna gives no
    access to the posterior mean. With greenlet, Optuna climbs from all its starts at once, in half
    the time; without it, the peer is refused rather than timed at its worst.
    """

    packages = ("optuna", "greenlet")

    def _sampler(self, seed: int, options: dict[str, Any]) -> Any:
        return self._optuna.samplers.GPSampler(**{"seed": seed, **options})
