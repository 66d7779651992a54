"""A magnetic field along a path: online SGPR in batches, and the map it makes.

Run `python -m experiments.field`. The field's strength is learned
in the order in which it was measured. Prints size and errors after each batch; writes them and a
map with the path and the inducing points to the config's folder.
"""

from pathlib import Path
from typing import Any

import typer

from experiments.command import CONFIGS, Config, Out, Smoke, folder, read, start

CONFIG = CONFIGS / "field.toml"


def main(config: Config = CONFIG, out: Out = None, smoke: Smoke = False) -> None:
    """Stream the path; compare with a GP on all of it; draw the map."""
    c = read(config, CONFIG)
    if smoke:
        c |= {"table": "synthetic", "batches": 4}
    run(c, folder(c["output"], out, smoke))


def run(c: dict[str, Any], out: Path) -> None:
    """The stream of one configuration."""
    import pandas as pd
    import torch

    from bo_stream import OnlineSGPR
    from bo_stream.growth import VIPS, FixedSize
    from bo_stream.scores import score
    from experiments.maps import draw_field
    from experiments.walk import path_kernel, walked

    torch.set_num_threads(1)
    X, Y, X_test, Y_test, attribution = walked(c["table"], c["every"])
    kw = path_kernel(Y, c)

    def errors(model: OnlineSGPR) -> dict[str, float]:
        result = score(model, X_test, Y_test, Y_test)
        return {"rmse": result.rmse, "nlpd": result.nlpd}

    rows = []
    parts = list(zip(X.chunk(c["batches"]), Y.chunk(c["batches"]), strict=True))
    model = OnlineSGPR(*parts[0], growth=VIPS(c["delta"]), trust=c["trust"], **kw())
    model.fit()
    model.reselect()
    for i, part in enumerate(parts):
        if i:
            model.observe(*part)
        M = len(model.inducing_points)
        rows.append({"batch": i, "n": model.num_observed, "points": M} | errors(model))
    full = OnlineSGPR(X, Y, growth=FixedSize(c["points"]), **kw())
    full.fit(c["evaluations"])
    rows.append({"batch": "all at once", "n": len(X), "points": c["points"]} | errors(full))
    table = pd.DataFrame(rows)
    table.to_csv(out / "batches.csv", index=False)
    draw_field(model, X, out / "map.png", f"field strength, {attribution}")
    typer.echo(table.to_string(index=False, float_format="{:.3f}".format))


if __name__ == "__main__":
    start(main)
