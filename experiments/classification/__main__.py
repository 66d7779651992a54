"""Streaming classification beside an exact Dirichlet GP, whatever the order of the labels.

Run `python -m experiments.classification`. Banana (2 inputs) and SVM Guide 1 (4 inputs), each with
its own training and test rows. `DirichletClassifier` takes the training rows 50 at a time: in
random order; one class after the other; and with the second class absent from the first quarter of
the stream, unknown until it turns up. It fits after an eighth and three eighths of the rows, and at
the end. The exact GP sees all rows at once; it is gpytorch's, on the same transformed labels.

Writes a table of accuracies and log losses to results/classification.
"""

from experiments.common.command import Choice, Out, Smoke, begin, command, selected, start
from experiments.common.progress import Progress, say

TAKES = "about 8 minutes on one core"


def main(out: Out = None, smoke: Smoke = False, table: Choice = None) -> None:
    """Stream labels in three orders, and fit an exact GP to all of them."""
    folder = begin("results/classification", out, smoke, TAKES, ["rich"])

    import pandas as pd
    import torch

    from experiments.classification.exact import exact_scores
    from experiments.classification.rows import TABLES, made_up, read
    from experiments.classification.streams import ORDERS, streamed

    torch.set_num_threads(1)
    names = ["made up"] if smoke else selected(table, TABLES, "--table")
    progress = Progress(len(names) * (1 + len(ORDERS)), "runs")
    lines = []
    for name in names:
        data = made_up() if smoke else read(name)
        for order in ORDERS:
            lines.append({"table": name, "order": order, **streamed(data, order)})
            progress(f"{name}, {order}")
        lines.append({"table": name, "order": "all at once", **exact_scores(data)})
        progress(f"{name}, exact")
    result = pd.DataFrame(lines)
    result.to_csv(folder / "accuracies.csv", index=False)
    say(result.round(4).to_string(index=False))


app = command(main)

if __name__ == "__main__":
    start(app)
