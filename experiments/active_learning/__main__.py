"""Where to measure next on a malaria raster: campaigns of active learning, compared.

Run `python -m experiments.active_learning experiments/configs/malaria_senegal.toml` for all
observation models, surrogates, policies, kernels and seeds of the file, which takes hours, or
choose among them by options. With `--smoke`: seconds on the synthetic field. Tables, figures and
maps go to the config's folder.
"""

from pathlib import Path
from typing import Annotated, Any

from experiments.active_learning.matrix import narrowed, read, smoked
from experiments.common.command import (
    TAKES,
    BadParameter,
    Choice,
    Config,
    Fresh,
    Out,
    Retry,
    Smoke,
    Workers,
    begin,
    command,
    done,
    end,
    need,
    option,
    start,
    swept,
)
from experiments.common.progress import say

Numbers = Annotated[list[int] | None, option(help="Only these; may repeat.")]


def main(
    config: Config,
    out: Out = None,
    smoke: Smoke = False,
    observation: Choice = None,
    surrogate: Choice = None,
    grid_size: Annotated[list[int] | None, option(help="Only these of WISKI.")] = None,
    policy: Choice = None,
    kernel: Choice = None,
    seed: Numbers = None,
    steps: Annotated[int | None, option(min=1, help="Instead of the config's.")] = None,
    workers: Workers = None,
    retry: Retry = False,
    fresh: Fresh = False,
) -> None:
    """Run every observation model, surrogate, policy, kernel and seed of a config; draw them."""
    chosen: dict[str, list[Any] | None] = {
        "observations": observation,
        "surrogates": surrogate,
        "grid_size": grid_size,
        "policies": policy,
        "kernels": kernel,
        "seeds": seed,
    }
    whole = read(config)
    c = narrowed(whole, chosen) | ({} if steps is None else {"steps": steps})
    takes = whole.get(TAKES)
    if takes and c != whole:
        takes += " for the whole configuration, of which this is a part"
    run(smoked(c) if smoke else c, out, smoke, takes, workers, retry, fresh)


def run(c: dict[str, Any], out: Path | None, smoke: bool, takes: str | None, *options: Any) -> None:
    """The campaigns of one configuration."""
    need("rich", "matplotlib", "sqlalchemy", "loky")

    import torch

    from bo_stream.errors import InputError
    from experiments.active_learning.course import planned, report
    from experiments.common.sweep_display import watching
    from problems.errors import ProblemDataError

    torch.set_num_threads(1)
    try:
        cells, runs = planned(c)
    except (InputError, ProblemDataError) as error:
        raise BadParameter(str(error)) from error
    folder = begin(c["output"], out, smoke, takes)
    say(f"{len(runs)} campaigns on {len(cells.X)} cells. {cells.attribution}")
    show = watching(lambda row: f"RMSE {row['rmse']:.4g} after {row['n']} cells")
    outcomes = swept(runs, folder, smoke, *options, show=show, about={"study": c})
    if good := done(runs, outcomes):
        report(good, cells.units, folder)
    end(outcomes, folder)


app = command(main)

if __name__ == "__main__":
    start(app)
