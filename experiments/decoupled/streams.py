"""Methods along the same streams, scored after every batch, and what comes out of it in tables."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import pandas as pd
from torch import Tensor

from bo_stream.errors import InputError
from experiments.common.baselines.baseline import Baseline
from experiments.common.baselines.registry import BASELINES
from experiments.common.baselines.surrogates import Surrogate, observations, twin
from experiments.common.data import TableSplit, rows_of, scores
from experiments.common.progress import Progress, say
from experiments.common.study import tables

SCORES = ["seconds", "nmse", "nlpd"]
Row = dict[str, Any]


def baseline(spec: dict[str, Any], seed: int) -> Baseline:
    """A method, new, by its ``kind``: a baseline's name, beside its options, or ``family`` (then
    beside ``name``, and ``options`` and ``evaluations`` if need be).
    """
    rest = {key: value for key, value in spec.items() if key != "kind"}
    if spec["kind"] == "family":
        return Surrogate(rest["name"], rest.get("options", {}), rest.get("evaluations"))
    if spec["kind"] not in BASELINES:
        known = ", ".join(["family", *BASELINES])
        raise InputError(f"a kind out of {known}", repr(spec["kind"]), "Choose one of these.")
    return BASELINES[spec["kind"]](**rest, seed=seed)


def followed(c: dict[str, Any], keep: Callable[[pd.DataFrame], object]) -> pd.DataFrame:
    """All methods and twins on all tables, targets and seeds of a configuration, a row a batch.

    ``output`` is the target of a table of several. ``seconds`` are those of processor time,
    learning; ``nmse`` is the squared error over the variance of the test outcomes; ``nlpd`` is in
    nats, for standardised outcomes. ``keep`` is called with all rows so far whenever a stream is
    done.
    """
    rows: list[Row] = []
    each = [(tables([entry]), seed) for entry in c["table"] for seed in c["seeds"]]
    streams = [(entry, about, seed) for read, seed in each for entry, about, _ in read]
    with Progress(len(streams) * len(c["contenders"]), "runs") as progress:
        for entry, about, seed in streams:
            split = TableSplit.standardised(*rows_of(entry), c["train"], c["test"], seed)
            output = entry.get("target", "")
            head = {"table": about.removesuffix(f", target {output}"), "output": output}
            for row in _stream(split, c, seed, progress):
                rows.append(head | {"seed": seed} | row)
            keep(pd.DataFrame(rows))
            last = {row["contender"]: row for row in rows}  # later rows replace earlier ones
            ended = ", ".join(f"{name} {row['nmse']:.4f}" for name, row in last.items())
            say(f"{about}, seed {seed}: nMSE {ended}")
    return pd.DataFrame(rows)


def scored(predicted: tuple[Tensor, Tensor], split: TableSplit) -> dict[str, float]:
    """``nmse`` and ``nlpd`` of means and variances at the test rows."""
    known = scores(*predicted, split.Y_test[:, 0])
    nmse = known["rmse"] ** 2 / float(split.Y_test.var(correction=0))
    return {"nmse": nmse, "nlpd": known["nlpd"]}


def means(table: pd.DataFrame) -> pd.DataFrame:
    """Means over outputs: a row a table, seed, method and batch, in the order of the runs."""
    keys = ["table", "seed", "contender", "step", "rows"]
    return table.groupby(keys, sort=False)[SCORES].mean().reset_index()


def summary(by_seed: pd.DataFrame, first: str) -> pd.DataFrame:
    """The end of every stream, from `means`: a row a table and method, means over seeds.

    ``first`` is the method that set the seconds of the others; ``ratio`` is its nMSE over this
    one's, ``gap`` its NLPD less this one's.
    """
    last = by_seed[by_seed["rows"] == by_seed.groupby("table")["rows"].transform("max")]
    parts = []
    for name, part in last.groupby("table", sort=False):
        ends = part.groupby("contender", sort=False)[SCORES].mean()
        best = ends.loc[first].astype(float)
        ends["ratio"] = best["nmse"] / ends["nmse"]
        ends["gap"] = best["nlpd"] - ends["nlpd"]
        parts.append(ends.reset_index().assign(table=name))
    return pd.concat(parts, ignore_index=True)[["table", "contender", *SCORES, "ratio", "gap"]]


def _stream(split: TableSplit, c: dict[str, Any], seed: int, progress: Progress) -> Iterator[Row]:
    """The first method sets the seconds of every batch; twins follow its hyperparameters.

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
            at_test = scored(method.predict(split.X_test), split)
            yield head | {"contender": name, "seconds": method.seconds} | at_test
            if name == leader:
                budgets[step] = c["times"] * (method.seconds - before)
                for row in _twins(split, end, c["twins"], method.model()):
                    yield head | row
            progress(f"{name}, {end} rows", done=0)
        progress(name)


def _twins(split: TableSplit, end: int, specs: dict[str, Any], model: Any) -> Iterator[Row]:
    """Models with the same hyperparameters, built from all rows so far; some at the end only."""
    for name, spec in specs.items():
        if spec["every"] or end == len(split.X):
            began, options = time.process_time(), spec.get("options", {})
            other = twin(spec["name"], split.X[:end], split.Y[:end], model, options)
            predicted = observations(other, split.X_test)
            seconds = time.process_time() - began
            yield {"contender": name, "seconds": seconds} | scored(predicted, split)
