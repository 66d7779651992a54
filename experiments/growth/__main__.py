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

from typing import Annotated, Any, Literal

from experiments.common.command import (
    CONFIGS,
    TAKES,
    Config,
    Out,
    Smoke,
    begin,
    command,
    option,
    read,
    start,
)
from experiments.common.progress import say

CONFIG = CONFIGS / "growth.toml"


def main(
    config: Config = CONFIG,
    kernel: Annotated[
        Literal["additive", "product"] | None, option(help="Instead of the config's.")
    ] = None,
    out: Out = None,
    smoke: Smoke = False,
) -> None:
    """Stream every scenario under every policy; compare sizes at equal error."""
    c: dict[str, Any] = read(config, CONFIG)
    if kernel:
        c |= {"kernel": kernel, "output": f"{c['output']}_{kernel}"}
    if smoke:
        c |= {"streams": [[1, 40, 6]], "seeds": [0]}
    folder = begin(c["output"], out, smoke, c.get(TAKES))

    import torch

    from experiments.common.plots import draw_sizes
    from experiments.growth.rivals import compared, ratios
    from experiments.growth.scenarios import PANELS

    torch.set_num_threads(1)
    results, sizes = compared(c)
    results.to_csv(folder / "results.csv", index=False)
    sizes.to_csv(folder / "sizes.csv", index=False)
    draw_sizes(sizes, folder / "sizes.png", title=lambda dim, name: f"{PANELS[name]}, {dim}-D")
    table = ratios(results)
    table.to_csv(folder / "table.csv")
    say("\nInducing points at equal error, means over seeds; medians of their ratios")
    say(table.round(2).to_string())


app = command(main)

if __name__ == "__main__":
    start(app)
