"""Optimisers beside each other: `python -m experiments.comparison experiments/configs/X.toml`.

Tasks times methods times seeds: regret against evaluations and processor seconds, tables and a
picture.
"""

from experiments.common.command import CONFIGS, start
from experiments.common.sweeping import sweeping

app = sweeping("experiments.comparison.study", CONFIGS / "classics.toml", __doc__)

if __name__ == "__main__":
    start(app)
