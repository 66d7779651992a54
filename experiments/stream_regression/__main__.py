"""Tables as streams: errors of surrogates against rows, seconds and bytes.

Run `python -m experiments.stream_regression` (or name a configuration like
experiments/configs/stream_tables.toml). Every surrogate takes the rows of every table in batches,
in random order, sorted by the first input, or in the order of the table; hyperparameters are
learned from the first rows and again whenever their number has doubled. Every batch is scored
before it is absorbed, and rows that were held out are scored as the stream goes on. Prints medians
over seeds at the end and differences by seed, and writes both, with a table for each run, to the
config's folder; `python -m experiments.report FOLDER` draws them.
"""

from experiments.common.command import CONFIGS, start
from experiments.common.sweeping import sweeping

app = sweeping("experiments.stream_regression.study", CONFIGS / "stream_tables.toml", __doc__)

if __name__ == "__main__":
    start(app)
