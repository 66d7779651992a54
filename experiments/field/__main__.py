"""A magnetic field along a path: online SGPR in batches, and the map it makes.

Run `python -m experiments.field`. The field's strength is learned
in the order in which it was measured. Prints size and errors after each batch; writes them and a
map with the path and the inducing points to the config's folder.
"""

from experiments.common.command import (
    CONFIGS,
    TAKES,
    Config,
    Out,
    Smoke,
    begin,
    command,
    read,
    start,
)
from experiments.common.progress import say

CONFIG = CONFIGS / "field.toml"


def main(config: Config = CONFIG, out: Out = None, smoke: Smoke = False) -> None:
    """Stream the path; compare with a GP on all of it; draw the map."""
    c = read(config, CONFIG)
    if smoke:
        c |= {"table": "synthetic", "batches": 4}
    folder = begin(c["output"], out, smoke, c.get(TAKES))

    import torch

    from experiments.field.map import draw_field
    from experiments.field.stream import streamed
    from experiments.field.walk import walked

    torch.set_num_threads(1)
    walk = walked(c["table"], c["every"])
    model, table = streamed(walk, c)
    table.to_csv(folder / "batches.csv", index=False)
    draw_field(model, walk.X, folder / "map.png", f"Field strength, {walk.attribution}")
    say(table.to_string(index=False, float_format="{:.3f}".format))


app = command(main)

if __name__ == "__main__":
    start(app)
