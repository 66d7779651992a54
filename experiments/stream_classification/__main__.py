"""Streaming classification beside an exact Dirichlet GP, whatever the order of the labels.

Run `python -m experiments.stream_classification` (or name a configuration like
experiments/configs/classes.toml). `DirichletClassifier` over each family takes the training rows of
each table in batches: in random order; one class after the other; and with the second class absent
from the first quarter of the stream, unknown until it turns up. It fits after an eighth and three
eighths of the rows, and at the end. The exact GP sees all rows at once; it is gpytorch's, on the
same transformed labels. Prints accuracies and log losses and writes them, with a table for each
run, to the config's folder; `python -m experiments.report FOLDER` draws them.
"""

from experiments.common.command import CONFIGS, start
from experiments.common.sweeping import sweeping

app = sweeping("experiments.stream_classification.study", CONFIGS / "classes.toml", __doc__)

if __name__ == "__main__":
    start(app)
