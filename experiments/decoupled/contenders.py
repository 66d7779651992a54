"""Contenders by the words of a configuration."""

from __future__ import annotations

from typing import Any

from bo_stream.errors import InputError
from experiments.common.baselines.baseline import Baseline
from experiments.common.baselines.registry import BASELINES
from experiments.common.baselines.surrogates import Surrogate
from experiments.common.kinds import built

__all__ = ["baseline"]


def baseline(spec: dict[str, Any], seed: int) -> Baseline:
    """A contender, new.

    Args:
        spec: ``kind``: ``family`` (then ``name``, and ``options`` and ``evaluations`` if need be)
            or the name of a baseline, with its sizes and rates.
        seed: Of what is random in it.
    """
    rest = {key: value for key, value in spec.items() if key != "kind"}
    if spec["kind"] == "family":
        return Surrogate(rest["name"], built(rest.get("options", {})), rest.get("evaluations"))
    if spec["kind"] not in BASELINES:
        known = ", ".join(["family", *BASELINES])
        raise InputError(f"a kind out of {known}", repr(spec["kind"]), "Choose one of these.")
    return BASELINES[spec["kind"]](**rest, seed=seed)
