"""What saved malaria campaigns say: policies, a map maker's baseline and an exact GP compared.

Run `python -m experiments.malaria_report results/active_learning/senegal_2017` after
`experiments.active_learning`. Per raster, observation model, surrogate and kernel, medians over the
seeds that both policies have: the error of NIPV and random at the last step, of inverse-distance
weighting on the random cells, and half way of an exact GP with the same kernel, noise model and
cells as NIPV's surrogate; the least and largest coverage from half way on.
"""

from pathlib import Path
from typing import Annotated

from experiments.common.command import BadParameter, argument, command, option, start
from experiments.common.progress import Progress, say


def main(
    folders: Annotated[list[Path], argument(exists=True, file_okay=False, help="Of campaigns.")],
    half: Annotated[
        int | None, option(help="Queried cells half way; by default those at the middle step.")
    ] = None,
    exact: Annotated[bool, option(help="Fit the exact GP too.")] = True,
) -> None:
    """Print the comparison and write it beside the first folder's campaigns."""
    import pandas as pd
    import torch

    from experiments.malaria_report.compare import KEYS, compared, found
    from problems.errors import ProblemDataError

    torch.set_num_threads(1)
    pairs, credits = found(folders)
    takes = "seconds for each, more for an exact GP on many cells" if exact else "seconds"
    say(f"{len(pairs)} pairs of campaigns; takes {takes}. Writes {folders[0]}/report.csv.")
    progress, rows = Progress(len(pairs), "pairs"), []
    try:
        for key, paths in pairs.items():
            rows.append(dict(zip([*KEYS, "seed"], key, strict=True)) | compared(paths, half, exact))
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


app = command(main)

if __name__ == "__main__":
    start(app)
