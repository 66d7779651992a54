"""What saved malaria campaigns say: policies, a map maker's baseline and an exact GP compared.

Run `python -m experiments.malaria_report results/active_learning/senegal_2017` after
`experiments.active_learning`. Per raster, observation model, surrogate and kernel, medians over the
seeds that both policies have: the error of NIPV and random at the last step, of inverse-distance
weighting on the random cells, and half way of an exact GP with the same kernel, noise model and
cells as NIPV's surrogate; the least and largest coverage from half way on.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
import torch
from botorch.models.transforms.outcome import Standardize
from torch import Tensor

from bo_stream import ExactGP
from bo_stream.scores import inverse_distance, score
from experiments.active_learning.campaigns import load_cells, name_of, with_kernel
from experiments.common.command import BadParameter, argument, command, start
from experiments.common.loops import FitPolicy, PoolConfig
from experiments.common.loops.pool_config import Split
from experiments.common.progress import Progress, say
from problems.errors import BadData, ProblemDataError
from problems.malaria import Malaria

KEYS = ["cells", "observation", "surrogate", "kernel"]
"""What pairs of campaigns have in common, beside the seed."""


def main(
    folders: Annotated[list[Path], argument(exists=True, file_okay=False, help="Of campaigns.")],
) -> None:
    """Print the comparison and write it beside the first folder's campaigns."""
    torch.set_num_threads(1)
    pairs, credits = found(folders)
    takes = "seconds for each, more for an exact GP on many cells"
    say(f"{len(pairs)} pairs of campaigns; takes {takes}. Writes {folders[0]}/report.csv.")
    rows = []
    try:
        with Progress(len(pairs), "pairs") as progress:
            for key, paths in pairs.items():
                about = dict(zip([*KEYS, "seed"], key, strict=True))
                rows.append(about | compared(paths))
                progress(", ".join(map(str, key)))
    except ProblemDataError as error:
        raise BadParameter(str(error)) from error
    table = pd.DataFrame(rows)
    medians = table.groupby(KEYS, sort=False).median(numeric_only=True).drop(columns="seed")
    medians.insert(0, "seeds", table.groupby(KEYS, sort=False).size())
    say(medians.T.to_string(float_format="{:.4g}".format))
    for name, attribution in credits.items():
        say(f"{name}: {attribution}")
    table.to_csv(folders[0] / "report.csv", index=False)


@dataclass(frozen=True, eq=False)
class Saved:
    """A campaign found again: its JSON, its cells and split, and the cells queried, in order."""

    about: dict[str, Any]
    cells: Malaria
    split: Split
    queried: Tensor

    @classmethod
    def read(cls, path: Path) -> Saved:
        """A saved campaign.

        Raises:
            DataNotFound: if the campaign's source is not there: nothing stands in for it.
            BadData: if the cells found there are not those of the campaign.
        """
        about = json.loads(path.read_text())
        cells, said = load_cells(about["source"]), (about["cells"], about["source"].get("cells"))
        found = name_of(cells), len(cells.X)
        if found[0] != said[0] or said[1] not in (None, found[1]):
            raise BadData(
                f"{path}: expected the cells that the campaign was run on, {said[0]} "
                f"({said[1] or 'any number of'} cells), got {found[0]} ({found[1]} cells). Point "
                "BO_STREAM_DATA at the data of that time, or run the campaign again."
            )
        config = {**about["config"], "fit": FitPolicy(**about["config"]["fit"])}
        split = Split.of(cells, PoolConfig(**config))
        return cls(about, cells, split, torch.tensor(about["queried"]))

    def exact_error(self, n: int) -> float:
        """Error of an exact GP with the same kernel, fitted to the first n cells."""
        cells, split, first = self.cells, self.split, self.queried[:n]
        box = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.float64)
        noise = None if split.noise is None else split.noise[first]
        Y = torch.tensor(self.about["readings"][:n], dtype=torch.float64).unsqueeze(-1)
        make = partial(with_kernel, ExactGP, self.about["kernel"])
        model = make(cells.X[first], Y, noise, bounds=box, outcome_transform=Standardize(1))
        model.fit()
        test, known = split.test, split.noise
        at_test = (cells.X[test], cells.Y[test], split.observed[test])
        return score(model, *at_test, None if known is None else known[test]).rmse

    def inverse_distance_error(self) -> float:
        """Error of inverse-distance weighting on the cells queried."""
        X, Y, test = self.cells.X, self.split.observed, self.split.test
        guess = inverse_distance(X[self.queried], Y[self.queried], X[test])
        return float((guess - self.cells.Y[test]).square().mean().sqrt())


def found(
    folders: Iterable[Path],
) -> tuple[dict[tuple[Any, ...], dict[str, Path]], dict[str, str]]:
    """The JSON of either policy for each `KEYS` and seed, and each cells' attribution.

    Raises:
        BadParameter: if a JSON is not that of a campaign, or there is no pair.
    """
    folders = list(folders)
    runs: dict[tuple[Any, ...], dict[str, Path]] = {}
    credits = {}
    for path in sorted(p for folder in folders for p in folder.glob("*.json") if p.stem != "sweep"):
        about = json.loads(path.read_text())
        missing = {*KEYS, "seed", "policy", "source"} - about.keys()
        if missing:
            raise BadParameter(
                f"{path}: expected the JSON of a saved campaign, got none of {sorted(missing)}."
            )
        key = (*(about[k] for k in KEYS), about["seed"])
        runs.setdefault(key, {})[about["policy"]] = path
        credits[about["cells"]] = about["attribution"]
    pairs = {key: paths for key, paths in runs.items() if {"nipv", "random"} <= set(paths)}
    if not pairs:
        raise BadParameter(
            "expected campaigns of the policies nipv and random that are alike but for the policy, "
            f"got {sum(map(len, runs.values()))} campaigns without such a pair in "
            f"{', '.join(map(str, folders))}. Run experiments.active_learning first."
        )
    return pairs, credits


def compared(paths: dict[str, Path]) -> dict[str, float]:
    """One seed's numbers, from the campaigns of both policies."""
    nipv, random = (pd.read_csv(paths[p].with_suffix(".csv")) for p in ("nipv", "random"))
    if nipv["n"].tolist() != random["n"].tolist():
        raise BadParameter(
            f"expected campaigns of one length, got {nipv['n'].iloc[-1]} cells in {paths['nipv']} "
            f"and {random['n'].iloc[-1]} in {paths['random']}. Run the shorter one again."
        )
    half = int(nipv["n"].iloc[len(nipv) // 2])
    last, late = nipv.iloc[-1], nipv[nipv["n"] >= half]
    middle = float(nipv.loc[nipv["n"] == half, "rmse"].iloc[0])
    exact = Saved.read(paths["nipv"]).exact_error(half)
    return {
        "n": float(last["n"]),
        "nipv": last["rmse"],
        "random": random["rmse"].iloc[-1],
        "nipv / random": last["rmse"] / random["rmse"].iloc[-1],
        "inverse distance": Saved.read(paths["random"]).inverse_distance_error(),
        "n half way": float(half),
        "nipv half way": middle,
        "least coverage": late["coverage"].min(),
        "largest coverage": late["coverage"].max(),
        "exact GP half way": exact,
        "nipv / exact half way": middle / exact,
    }


app = command(main)

if __name__ == "__main__":
    start(app)
