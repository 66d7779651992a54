"""Contenders by the words of a configuration."""

from __future__ import annotations

from typing import Any

from bo_stream import growth
from bo_stream.errors import InputError
from experiments.common.baselines.baseline import Baseline
from experiments.common.baselines.batch_sgpr import BatchSGPR
from experiments.common.baselines.local import LocalGPs
from experiments.common.baselines.stochastic import StochasticDecoupled
from experiments.common.baselines.surrogates import Surrogate
from experiments.common.baselines.svi import SVI

__all__ = ["baseline", "options"]

KINDS: dict[str, Any] = {
    "svi": SVI,
    "batch_sgpr": BatchSGPR,
    "local": LocalGPs,
    "stochastic": StochasticDecoupled,
}


def baseline(spec: dict[str, Any], seed: int) -> Baseline:
    """A contender, new.

    Args:
        spec: ``kind``: ``family`` (then ``name``, and ``options`` and ``evaluations`` if need be)
            or one of ``svi, batch_sgpr, local, stochastic``, with its sizes and rates.
        seed: Of what is random in it.
    """
    rest = {key: value for key, value in spec.items() if key != "kind"}
    if spec["kind"] == "family":
        return Surrogate(rest["name"], options(rest), rest.get("evaluations"))
    if spec["kind"] not in KINDS:
        known = ", ".join(["family", *KINDS])
        raise InputError(f"a kind out of {known}", repr(spec["kind"]), "Choose one of these.")
    made: Baseline = KINDS[spec["kind"]](**rest, seed=seed)
    return made


def options(spec: dict[str, Any]) -> dict[str, Any]:
    """Options of a family; ``growth`` is a table: the name of its ``policy``, and its settings."""
    given = dict(spec.get("options", {}))
    if "growth" in given:
        settings = dict(given["growth"])
        given["growth"] = getattr(growth, settings.pop("policy"))(**settings)
    return given
