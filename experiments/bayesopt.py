"""Bayesian optimisation from the command line: `python -m experiments.bayesopt demo`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from experiments.command import CONFIGS, Config, Out, Smoke, folder

app = typer.Typer(
    add_completion=False, no_args_is_help=True, help=__doc__, pretty_exceptions_enable=False
)
Workers = Annotated[int, typer.Option(min=1, help="Processes, one torch thread each.")]


@app.command()
def demo(out: Out = None, smoke: Smoke = False, workers: Workers = 2) -> None:
    """WISKI beside an exact GP on noisy Levy: minutes, a picture and a table."""
    _study(CONFIGS / "demo.toml", folder("results/demo", out, smoke), smoke, workers)


@app.command()
def run(config: Config, out: Out = None, smoke: Smoke = False, workers: Workers = 2) -> None:
    """Run the study of a configuration, like those in experiments/configs."""
    _study(config, folder(Path("results") / config.stem, out, smoke), smoke, workers)


def _study(config: Path, out: Path, smoke: bool, workers: int) -> None:
    import pandas as pd  # here, so that --help need not wait for torch
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeElapsedColumn

    from experiments.plots import draw_regret
    from experiments.report import paired, summary
    from experiments.study import Study, execute

    start = time.perf_counter()
    try:
        study = Study.read(config, smoke)
    except (KeyError, TypeError, ValueError) as error:  # a key too many, too few, a wrong value
        raise typer.BadParameter(f"{config}: {error.args[0]}") from error
    tables: dict[str, pd.DataFrame] = {}
    columns = ("{task.description}", BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, "{task.fields[note]}") as progress:
        bars = {}
        for r in study.runs:
            name = f"{r.label}, seed {r.config.seed}"
            bars[r.stem] = progress.add_task(name, total=r.config.steps, start=False, note="")
        for r, result in execute(study, out, workers):
            if isinstance(result, pd.DataFrame):
                tables[r.stem] = result.assign(surrogate=r.label, seed=r.config.seed)
                continue
            if result["step"] == 0:
                progress.start_task(bars[r.stem])
            note = f"regret {result['inference_regret']:.3f}"
            progress.update(bars[r.stem], completed=result["step"], note=note)
    done = [tables[r.stem] for r in study.runs]
    draw_regret(done, out / "regret_vs_wallclock.png", study.title)
    table = summary(done, study.runs[0].config.q)
    table.to_csv(out / "summary.csv", index=False)
    typer.echo(f"\n{study.title}; times with {workers} processes of one thread\n")
    printed = table.map(lambda v: f"{v:.3f}" if isinstance(v, float) else f"{v}")
    typer.echo(printed.set_index("surrogate").T.to_string())
    differences = paired(done)
    differences.to_csv(out / "paired.csv", index=False)
    if len(differences):
        typer.echo("\nlog inference regret, paired by seed\n")
        typer.echo(differences.to_string(index=False, float_format="{:.3f}".format))
    typer.echo(f"\n{time.perf_counter() - start:.0f} s in all; wrote {out}/")


if __name__ == "__main__":
    app()
