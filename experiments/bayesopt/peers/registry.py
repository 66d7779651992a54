"""Peers by name."""

import inspect
from collections.abc import Iterable, Mapping
from typing import Any

from torch import Tensor

from bo_stream.errors import InputError, OptionError
from experiments.bayesopt.peers.cma_es import CMAES
from experiments.bayesopt.peers.last_layer import LastLayer
from experiments.bayesopt.peers.modelled import BoTorchExact, BoTorchSparse
from experiments.bayesopt.peers.optuna_samplers import OptunaGP, OptunaTPE
from experiments.bayesopt.peers.peer import (
    MissingPackageError,
    Peer,
    RandomSearch,
    SobolSearch,
    needed,
)
from experiments.bayesopt.peers.turbo import TuRBO

PEERS: dict[str, type[Peer]] = {
    "botorch": BoTorchExact,
    "botorch_sparse": BoTorchSparse,
    "optuna_tpe": OptunaTPE,
    "optuna_gp": OptunaGP,
    "cma": CMAES,
    "turbo": TuRBO,
    "vbll": LastLayer,
    "random": RandomSearch,
    "sobol": SobolSearch,
}


def required(name: str, options: Mapping[str, Any]) -> type[Peer]:
    """The class of a peer, once it is known that one can be made.

    Refused are names that are none, options that it does not have, and packages that are missing
    (`MissingPackageError`, which names the extra that brings them).
    """
    if name not in PEERS:
        raise InputError(f"one of {sorted(PEERS)}", repr(name), "Correct the name of the peer.")
    wanted = inspect.signature(PEERS[name])
    try:
        wanted.bind(None, 0, **options)
    except TypeError as error:
        raise OptionError(
            f"options of the peer {name!r}: {wanted}", f"{error}", "Correct them."
        ) from error
    for package in PEERS[name].packages:
        needed(package)
    return PEERS[name]


def skipped(entries: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Peers among the entries of a configuration that cannot be made, and what is missing."""
    found = {}
    for entry in entries:
        options = {k: v for k, v in entry.items() if k not in ("name", "label", "steps")}
        try:
            required(entry["name"], options)
        except MissingPackageError as error:
            found[entry["name"]] = str(error)
    return found


def peer(name: str, bounds: Tensor, seed: int = 0, **options: Any) -> Peer:
    """A peer by name, for a box ``2 x d``; raises what `required` does."""
    return required(name, options)(bounds, seed, **options)
