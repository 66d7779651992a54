"""How a model grows: VIPS in a growing domain, a stationary stream and one with outliers.

Run `python -m experiments.growth`. VIPS has one delta; OIPS, conditional variance and a fixed size
are tuned on each stream to VIPS's error: the smallest of their sizes that comes within 2 % of it
(or of the error with next to no conditional variance left, should VIPS be below that by luck).
Prints the sizes; writes them, the sizes after each batch, and a picture to the config's folder.

The function is a sum over axes, and so is the kernel: the factor of three between OIPS and VIPS on
the growing stream in 3-D comes with that, for OIPS compares points by their correlation, which does
not see that the axes add. With `--kernel product`, one kernel of all axes, it is 1.3, and 1.2 on
the other two streams.
"""

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from experiments.command import CONFIGS, Config, Out, Smoke, folder, read, start

CONFIG = CONFIGS / "growth.toml"


def main(
    config: Config = CONFIG,
    kernel: Annotated[
        Literal["additive", "product"] | None, typer.Option(help="Instead of the config's.")
    ] = None,
    out: Out = None,
    smoke: Smoke = False,
) -> None:
    """Stream every scenario under every policy; compare sizes at equal error."""
    c = read(config, CONFIG)
    if kernel:
        c |= {"kernel": kernel, "output": f"{c['output']}_{kernel}"}
    if smoke:
        c |= {"streams": [[1, 40, 6]], "seeds": [0]}
    run(c, folder(c["output"], out, smoke))


def run(c: dict[str, Any], out: Path) -> None:
    """All streams and seeds of one configuration."""
    import pandas as pd
    import torch

    from bo_stream.growth import OIPS, VIPS, ConditionalVariance, FixedSize, GrowthPolicy
    from experiments.growth_scenarios import SCENARIOS, Stream, grown
    from experiments.plots import draw_sizes

    torch.set_num_threads(1)
    noise, slack = c["noise"], c["slack"]
    rows: list[dict[str, Any]] = []
    sizes: list[dict[str, Any]] = []

    def record(name: str, policy: Any, stream: Stream, facts: dict[str, Any], most: float) -> float:
        M, rmse = grown(stream, policy, c)
        if rmse <= most:
            rows.append(facts | {"policy": name, "points": M[-1], "rmse": rmse})
            rows[-1]["setting"] = str(policy)
            sizes.extend(facts | {"policy": name, "batch": i, "points": m} for i, m in enumerate(M))
        return rmse

    for dim, size, batches in c["streams"]:
        for scenario, make in SCENARIOS.items():
            for seed in c["seeds"]:
                stream = make(dim, size, batches, noise, seed)
                facts = {"dim": dim, "scenario": scenario, "seed": seed}
                rmse = record("VIPS", VIPS(c["delta"]), stream, facts, float("inf"))
                points = rows[-1]["points"]
                _, least = grown(stream, ConditionalVariance(c["eta"][-1]), c)
                most = (1.0 + slack) * max(rmse, least)
                rivals: dict[str, list[GrowthPolicy]] = {
                    "OIPS": [OIPS(rho) for rho in c["rho"]],
                    "CV": [ConditionalVariance(eta) for eta in c["eta"]],
                    "fixed size": [FixedSize(max(1, round(points * f))) for f in c["factor"]],
                }
                for name, policies in rivals.items():  # from few points to many
                    for policy in policies:
                        if record(name, policy, stream, facts, most) <= most:
                            break
                typer.echo(f"{dim}-D, {scenario}, seed {seed}: {points} points, rmse {rmse:.4f}")
    results, per_batch = pd.DataFrame(rows), pd.DataFrame(sizes)
    results.to_csv(out / "results.csv", index=False)
    per_batch.to_csv(out / "sizes.csv", index=False)
    draw_sizes(per_batch, out / "sizes.png")
    keys, names = ["dim", "scenario"], ["VIPS", *rivals]
    table = results.pivot_table("points", keys, "policy", sort=False)[names]
    ratios = results.pivot_table("points", [*keys, "seed"], "policy", sort=False)
    for name in names[1:]:
        ratio = ratios[name] / ratios["VIPS"]
        table[f"{name} / VIPS"] = ratio.groupby(keys, sort=False).median()
    table.to_csv(out / "table.csv")
    typer.echo("\nInducing points at equal error, means over seeds; medians of their ratios")
    typer.echo(table.round(2).to_string())


if __name__ == "__main__":
    start(main)
