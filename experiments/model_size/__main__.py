"""How many inducing points online SGPR takes on real streams, and how near it comes to a full GP.

Run `python -m experiments.model_size`. Prints a row for each table and split and the means; writes
both, and size, processor time and test errors after each batch with pictures, to the config's
folder. Errors are drawn against those of a GP fitted to all training rows at once. Streams are
sorted by their first input, so that until the last batch some test rows lie where the stream has
not been yet, and errors are large.
"""

from experiments.common.command import CONFIGS, start
from experiments.common.sweeping import sweeping

app = sweeping("experiments.model_size.study", CONFIGS / "model_size.toml", __doc__)

if __name__ == "__main__":
    start(app)
