"""Where to measure next on a malaria raster: campaigns of active learning, compared.

Run `python -m experiments.active_learning experiments/configs/malaria_senegal.toml` for all
observation models, surrogates, policies, kernels and seeds of the file, which takes hours;
`malaria_senegal_wiski.toml` has a part of them. With `--smoke`: seconds on the synthetic field.
Tables, figures and maps go to the config's folder.
"""

from experiments.common.command import CONFIGS, start
from experiments.common.sweeping import sweeping

app = sweeping("experiments.active_learning.study", CONFIGS / "malaria_senegal.toml", __doc__)

if __name__ == "__main__":
    start(app)
