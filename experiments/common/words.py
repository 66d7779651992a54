"""Plain words for the names that configurations, tables and files use: for titles and legends."""

import re

WORDS = {
    "exact": "exact GP",
    "wiski": "WISKI",
    "projected_wiski": "ProjectedWISKI",
    "hsgp": "HSGP",
    "node_wiski": "NodeWISKI",
    "cagp": "CaGP",
    "online_sgpr": "OnlineSGPR",
    "online_svgp": "OnlineSVGP",
    "svdgp": "SVDGP",
    "nipv": "integrated variance (NIPV)",
    "max_variance": "largest variance",
    "near_most_uncertain": "near the most uncertain cell",
    "random": "random cells",
    "raster": "readings as in the raster",
    "known noise": "readings with known noise",
    "ard": "a lengthscale for each axis",
    "isotropic": "one lengthscale",
}
SIZED = {"wiski": "WISKI, {0} x {0} nodes", "cagp": "CaGP, {0} actions"}


def in_words(name: str) -> str:
    """A name of a surrogate, policy, observation model or kernel in words."""
    sized = re.fullmatch(r"([a-z_]+?)(\d+)", name)
    if sized and sized[1] in SIZED:
        return SIZED[sized[1]].format(sized[2])
    return WORDS.get(name, name.replace("_", " "))
