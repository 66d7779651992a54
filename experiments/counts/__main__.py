"""Surveys on a map of prevalence: where to examine people next, by what policy, compared.

Run `python -m experiments.counts` (or name a configuration like experiments/configs/counts.toml).
At every site the same number of people is examined. The truth is a raster whose logits are
stretched, so that prevalence is low at most places and high at some. Policies choose sites by the
integrated variance of the prevalence, by that of its logit, by that of empirical logits treated as
Gaussian data, or at random. Prints errors of the map and writes them, with a table and a map for
each run, to the config's folder.
"""

from experiments.common.command import CONFIGS, start
from experiments.common.sweeping import sweeping

app = sweeping("experiments.counts.study", CONFIGS / "counts.toml", __doc__)

if __name__ == "__main__":
    start(app)
