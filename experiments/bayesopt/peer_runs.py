"""Peers in a study's file: entries ``[[peer]]``, beside ``[[surrogate]]``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from bo_stream.campaign.proposals import Optimiser
from bo_stream.simulation import LoopConfig, Problem
from experiments.bayesopt.peer_loop import PeerLoop
from experiments.common.peers.modelled import ModelPeer
from experiments.common.peers.packages import INSTALL, MissingPackageError
from experiments.common.peers.registry import kind, peer, required
from experiments.common.progress import say

__all__ = ["installed", "peer_loop", "say_skipped"]


def installed(entries: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """The entries whose peers can be made, and the names of the others with what is missing.

    Args:
        entries: Each has ``name``, and may have ``label``, ``steps`` and options of the peer.

    Raises:
        KeyError: for an entry without a name.
        InputError: for a name that is none.
        OptionError: for options that a peer does not have.
    """
    found, skipped = [], {}
    for entry in entries:
        options = {k: v for k, v in entry.items() if k not in ("name", "label", "steps")}
        try:
            required(entry["name"], options)
        except MissingPackageError as error:
            skipped[entry["name"]] = str(error)
        else:
            found.append(entry)
    return found, skipped


def peer_loop(
    entry: dict[str, Any],
    problem: Problem,
    config: LoopConfig,
    callback: Callable[[dict[str, Any]], None] | None = None,
) -> PeerLoop:
    """A run of a peer, not started.

    Args:
        entry: Name and options. A peer with a model maximises its acquisition function as hard as
            the study's surrogates do theirs.
        problem: What to maximise.
        config: As for the surrogates.
        callback: Called with every row.
    """
    options = dict(entry)
    name = options.pop("name")
    if issubclass(kind(name), ModelPeer):
        hard = Optimiser(config.num_restarts, config.raw_samples, config.acqf_options)
        options["optimiser"] = hard
    return PeerLoop(problem, partial(peer, name, **options), config, callback)


def say_skipped(skipped: Mapping[str, str], out: Path) -> None:
    """Name the peers that a study goes without, and record them in ``skipped.csv``.

    Args:
        skipped: What is missing, by the peer's name.
        out: Folder of the study's results.
    """
    for name in skipped:
        say(f"skipped: {name} ({INSTALL})")
    if skipped:
        out.mkdir(parents=True, exist_ok=True)
        table = pd.DataFrame({"peer": skipped.keys(), "why": skipped.values()})
        table.to_csv(out / "skipped.csv", index=False)
