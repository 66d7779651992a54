"""Peers by name."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from bo_stream.errors import InputError, OptionError
from experiments.common.peers.botorch_exact import BoTorchExact
from experiments.common.peers.botorch_sparse import BoTorchSparse
from experiments.common.peers.cma_es import CMAES
from experiments.common.peers.last_layer import LastLayer
from experiments.common.peers.optuna_samplers import OptunaGP, OptunaTPE
from experiments.common.peers.packages import needed
from experiments.common.peers.peer import Peer
from experiments.common.peers.searches import RandomSearch, SobolSearch
from experiments.common.peers.turbo import TuRBO

__all__ = ["PEERS", "kind", "peer", "required"]

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


def kind(name: str) -> type[Peer]:
    """The class of a peer.

    Raises:
        InputError: for a name that is none.
    """
    if name not in PEERS:
        raise InputError(f"one of {sorted(PEERS)}", repr(name), "Correct the name of the peer.")
    return PEERS[name]


def required(name: str, options: Mapping[str, Any]) -> None:
    """Check that a peer can be made.

    Raises:
        InputError: for a name that is none.
        OptionError: for options that it does not have.
        MissingPackageError: naming what is not installed, and the extra that brings it.
    """
    wanted = inspect.signature(kind(name))
    try:
        wanted.bind(None, 0, **options)
    except TypeError as error:
        raise OptionError(
            f"options of the peer {name!r}: {wanted}", f"{error}", "Correct them."
        ) from error
    for package in kind(name).packages:
        needed(package)


def peer(name: str, bounds: Tensor, seed: int = 0, **options: Any) -> Peer:
    """A peer by name.

    Args:
        name: A key of `PEERS`.
        bounds: ``2 x d``.
        seed: Of all that it draws.
        options: Of its class.

    Raises:
        InputError: for a name that is none.
        OptionError: for options that it does not have.
        MissingPackageError: if what it needs is not installed.

    Example:
        >>> import torch
        >>> box = torch.tensor([[0.0, 0.0], [1.0, 2.0]])
        >>> search = peer("sobol", box, seed=1)
        >>> search.tell(torch.tensor([[0.5, 1.0]]), torch.tensor([[3.0]]))
        >>> search.ask(2).shape, search.recommend().tolist()
        (torch.Size([2, 2]), [[0.5, 1.0]])
    """
    required(name, options)
    return kind(name)(bounds, seed, **options)
