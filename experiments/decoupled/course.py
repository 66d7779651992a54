"""Contenders along the same streams, scored after every batch."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pandas as pd
import torch
from torch import Tensor

from experiments.common.baselines.surrogates import observations, twin
from experiments.common.densities import negative_log_densities
from experiments.common.kinds import built
from experiments.common.progress import Progress, say
from experiments.common.splits import TableSplit
from experiments.decoupled.contenders import baseline
from problems.tables import load_table

__all__ = ["followed", "scores", "split_of"]

Row = dict[str, Any]


def followed(c: dict[str, Any], keep: Callable[[pd.DataFrame], object]) -> pd.DataFrame:
    """All contenders and twins on all tables, outputs and seeds of a configuration.

    Args:
        c: The configuration.
        keep: Called with all rows so far whenever a stream is done.

    Returns:
        A row a contender and batch: ``table, output, seed, contender, step, rows, seconds`` (of
        processor time, learning), ``nmse`` (squared error over the variance of the test outcomes)
        and ``nlpd`` (nats, standardised outcomes).
    """
    rows: list[Row] = []
    streams = [(t, k, seed) for t in c["tables"] for seed in c["seeds"] for k in c["outputs"]]
    progress = Progress(len(streams) * len(c["contenders"]), "runs")
    for table, output, seed in streams:
        split, head = split_of(table, output, c, seed), {"table": table, "output": output}
        for row in _stream(split, c, seed, progress):
            rows.append(head | {"seed": seed} | row)
        keep(pd.DataFrame(rows))
        last = {row["contender"]: row for row in rows}  # later rows take the place of earlier ones
        said = ", ".join(f"{name} {row['nmse']:.4f}" for name, row in last.items())
        say(f"{table}, output {output}, seed {seed}: nMSE {said}")
    return pd.DataFrame(rows)


def split_of(table: str, output: int, c: dict[str, Any], seed: int) -> TableSplit:
    """Standardised rows of one outcome of a table; ``made up`` has six inputs and any outcome."""
    if table == "made up":
        generator = torch.Generator().manual_seed(0)
        n = c["train"] + c["test"]
        X = torch.rand(n, 6, generator=generator, dtype=torch.float64)
        noise = torch.randn(n, 1, generator=generator, dtype=torch.float64)
        Y = (X @ (3.0 + torch.arange(6.0).double() + output)).sin().unsqueeze(-1) + 0.1 * noise
    else:
        data = load_table(table)
        X, Y = data.X, data.Y[:, [output]]
    return TableSplit.standardised(X, Y, c["train"], c["test"], seed)


def scores(law: tuple[Tensor, Tensor], split: TableSplit) -> dict[str, float]:
    """``nmse`` and ``nlpd`` of means and variances at the test rows."""
    mean, variance = law
    square = (split.Y_test[:, 0] - mean).square()
    nlpd = negative_log_densities(mean, variance, split.Y_test[:, 0]).mean()
    nmse = square.mean() / split.Y_test.var(correction=0)
    return {"nmse": float(nmse), "nlpd": float(nlpd)}


def _stream(split: TableSplit, c: dict[str, Any], seed: int, progress: Progress) -> Iterator[Row]:
    """The first contender sets the seconds of every batch; twins follow its hyperparameters.

    The others have ``times`` its seconds.
    """
    ends = list(range(c["first"], len(split.X), c["batch"])) + [len(split.X)]
    leader, budgets = next(iter(c["contenders"])), [0.0] * len(ends)
    for name, spec in c["contenders"].items():
        method, begin = baseline(spec, seed), 0
        for step, end in enumerate(ends):
            before = method.seconds
            method.observe(split.X[begin:end], split.Y[begin:end], budgets[step])
            begin, head = end, {"step": step, "rows": end}
            law = method.predict(split.X_test)
            yield head | {"contender": name, "seconds": method.seconds} | scores(law, split)
            if name == leader:
                budgets[step] = c["times"] * (method.seconds - before)
                specs = c["twins"] if end == len(split.X) else _frequent(c["twins"])
                for row in _twins(split, end, specs, method.model()):
                    yield head | row
            progress(f"{name}, {end} rows", done=0)
        progress(name)


def _twins(split: TableSplit, end: int, specs: dict[str, Any], model: Any) -> Iterator[Row]:
    """Models with the same hyperparameters, built from all rows so far."""
    for name, spec in specs.items():
        began = time.process_time()
        other = twin(
            spec["name"], split.X[:end], split.Y[:end], model, built(spec.get("options", {}))
        )
        law = observations(other, split.X_test)
        seconds = time.process_time() - began
        yield {"contender": name, "seconds": seconds} | scores(law, split)


def _frequent(twins: dict[str, Any]) -> dict[str, Any]:
    """Those to be built after every batch."""
    return {name: spec for name, spec in twins.items() if spec["every"]}
