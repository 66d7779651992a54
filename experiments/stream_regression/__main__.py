"""Tables as streams: errors of surrogates against rows, seconds and bytes.

Run `python -m experiments.stream_regression` (or name a configuration like
experiments/configs/stream_tables.toml). Every surrogate takes the rows of every table in batches,
in random order or sorted by the first input; hyperparameters are learned from the first rows and
again whenever their number has doubled. Every batch is scored before it is absorbed, and rows that
were held out are scored as the stream goes on. Prints medians over seeds at the end and differences
by seed, and writes both, with a table a run, to the config's folder: `bo-stream report FOLDER`
draws them.
"""

from pathlib import Path
from typing import Any

from experiments.common.command import (
    CONFIGS,
    TAKES,
    Config,
    Fresh,
    Out,
    Retry,
    Smoke,
    Workers,
    begin,
    command,
    end,
    start,
    swept,
)
from experiments.common.progress import say

CONFIG = CONFIGS / "stream_tables.toml"


def main(
    config: Config = CONFIG,
    out: Out = None,
    smoke: Smoke = False,
    workers: Workers = None,
    retry: Retry = False,
    fresh: Fresh = False,
) -> None:
    """Stream every table into every surrogate."""
    from experiments.common.kinds import configured, finished, planned  # here: they bring torch
    from experiments.stream_regression.plan import plan

    c = configured(config, CONFIG)
    runs = planned(plan, c, smoke)
    folder = begin(c["output"], out, smoke, c.get(TAKES), ["rich", "sqlalchemy", "loky"])
    outcomes = swept(runs, folder, smoke, workers, retry, fresh, about={"study": c})
    done = finished(runs, outcomes, folder)
    if done:
        report(c, done, folder)
    end(outcomes, folder)


def report(c: dict[str, Any], done: Any, folder: Path) -> None:
    """Medians at the end, and differences by seed."""
    from experiments.stream_regression.summary import differences, ends

    summary, pairs = ends(done), differences(done)
    summary.to_csv(folder / "summary.csv", index=False)
    pairs.to_csv(folder / "paired.csv", index=False)
    say(f"\n{c['title']}: medians over seeds at the end\n")
    say(summary.to_string(index=False, float_format="{:.4g}".format, na_rep="-"))
    if len(pairs):
        say("\nDifferences from the best, by seed\n")
        say(pairs.to_string(index=False, float_format="{:.3f}".format, na_rep="-"))
    say(f"\nPictures: bo-stream report {folder}")


app = command(main)

if __name__ == "__main__":
    start(app)
