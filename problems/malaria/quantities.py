"""Names, units and attribution of the two supported Malaria Atlas Project rasters."""

from __future__ import annotations

import re
from dataclasses import dataclass

from problems.errors import BadData


@dataclass(frozen=True)
class Quantity:
    """A raster the Malaria Atlas Project publishes yearly.

    Attributes:
        name: ``incidence`` or ``pfpr``.
        units: Unit of the value.
        coverage: Its name in the project's services, after the release.
        aliases: Lower-case words that identify the quantity in a file name.
    """

    name: str
    units: str
    coverage: str
    aliases: tuple[str, ...]


QUANTITIES = {
    "incidence": Quantity(
        "incidence",
        "P. falciparum clinical cases per person per year, all ages",
        "Global_Pf_Incidence_Rate",
        ("incidence",),
    ),
    "pfpr": Quantity(
        "pfpr",
        "PfPR2-10: fraction (0-1) of children aged 2-10 with detectable P. falciparum",
        "Global_Pf_Parasite_Rate",
        ("pfpr", "parasite_rate", "parasite-rate"),
    ),
}
UNKNOWN_UNITS = "as in the source (pass quantity='incidence' or 'pfpr' to name them)"
SYNTHETIC_ATTRIBUTION = "Synthetic field of bo_stream (no real data; calibrated to such rasters)"


def attribution(release: str | None, kind: str = "") -> str:
    """The attribution that must accompany figures and tables made from a file of the project.

    Args:
        release: Such as ``202508``, if known.
        kind: How the project's GeoTIFF was converted, for a file that is not the original.
    """
    parts = ["Contains data of the Malaria Atlas Project (https://malariaatlas.org)"]
    parts += [f"release {release}"] if release else []
    source = ", ".join([*parts, "CC BY"])
    return "; ".join([source, "Weiss et al., Lancet 2019;394:322-331", *([kind] if kind else [])])


def release_of_file(filename: str) -> str | None:
    """The release a name such as ``202508_Global_Pf_Parasite_Rate_BEN_2017.tiff`` starts with."""
    found = re.match(r"(20\d{4})_", filename)
    return found.group(1) if found else None


def quantity_named(name: str) -> Quantity:
    """Look up a quantity by name.

    Raises:
        BadData: for an unknown name.
    """
    if name not in QUANTITIES:
        raise BadData(f"Expected quantity to be one of {sorted(QUANTITIES)}, got {name!r}.")
    return QUANTITIES[name]


def quantity_of_file(filename: str) -> Quantity | None:
    """The quantity identified by a file name, or None."""
    lowered = filename.lower()
    found = [q for q in QUANTITIES.values() if any(alias in lowered for alias in q.aliases)]
    return found[0] if len(found) == 1 else None
