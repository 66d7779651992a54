"""Streaming surrogates with qUCB, EI and Thompson sampling, and NIPV on malaria rasters.

Run `python -m experiments.mission`. Of noisy functions it gives regret against evaluations and
against processor seconds, and seconds of a step against the number of observations; of rasters
error, integrated variance, coverage and seconds, with maps. Tables and pictures are of the runs
that are done, so that the study may be run in parts: `--only "*_0"` takes one seed, `--only
"levy*WISKI*"` some runs, `--minutes 20` a limited time.
"""

from experiments.common.command import CONFIGS, start
from experiments.common.sweeping import sweeping

app = sweeping("experiments.mission.study", CONFIGS / "mission.toml", __doc__)

if __name__ == "__main__":
    start(app)
