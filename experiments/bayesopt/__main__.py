"""Bayesian optimisation from the command line: `python -m experiments.bayesopt demo`."""

from experiments.common.command import (
    CONFIGS,
    Config,
    Fresh,
    Out,
    Retry,
    Smoke,
    Workers,
    commands,
    parsed,
    start,
)


def demo(
    out: Out = None,
    smoke: Smoke = False,
    workers: Workers = None,
    retry: Retry = False,
    fresh: Fresh = False,
) -> None:
    """WISKI beside an exact GP on noisy Levy: minutes, pictures and tables."""
    from experiments.bayesopt import preloaded, study  # here, so that --help need not wait
    from experiments.common.study import conduct

    options = (smoke, workers, retry, fresh)
    folder = conduct(study, parsed(CONFIGS / "demo.toml"), "results/demo", out, *options)
    conduct(preloaded, parsed(CONFIGS / "crossover.toml"), folder, folder / "crossover", *options)


def run(
    config: Config,
    out: Out = None,
    smoke: Smoke = False,
    workers: Workers = None,
    retry: Retry = False,
    fresh: Fresh = False,
) -> None:
    """Run the study of a configuration, like those in experiments/configs."""
    from experiments.bayesopt import study
    from experiments.common.study import conduct

    c = {"title": config.stem, **parsed(config)}
    conduct(study, c, f"results/{config.stem}", out, smoke, workers, retry, fresh)


app = commands(__doc__, demo, run)

if __name__ == "__main__":
    start(app)
