"""Figures of a page: what plotly draws, a caption, words for those who do not see it, numbers.

Colours are names of the page's own (``@c0``, ``@c0/0.2``), which become those of a light or a dark
page where it is read.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from itertools import count
from typing import Any

import numpy as np
import pandas as pd

from bo_stream.cli.reports.tables import table

__all__ = ["Curve", "Figure", "Panels", "band", "colour", "dash", "numbers", "plain"]

COLOURS = 8
DASHES = ("solid", "dash", "dot", "dashdot", "longdash")
STROKES = ("", "7 4", "2 3", "7 3 2 3", "12 4")
MOST, LEAST, IN_ALL = 200, 20, 2400
"""Points of a curve that are kept at most and at least, and about how many of all curves
together: a screen shows no more, and pages stay small."""
ROWS = 5
"""Rows that a curve has among the numbers below its figure."""

Trace = dict[str, Any]


def colour(k: int) -> str:
    """The page's name of the k-th colour."""
    return f"@c{k % COLOURS}"


def dash(k: int) -> str:
    """The k-th kind of line; colour and kind together do not come back before the 40th."""
    return DASHES[k % len(DASHES)]


def plain(values: Iterable[float]) -> list[float | None]:
    """Numbers for a figure, to a ten-thousandth of their range; None for what is not finite.

    That takes five digits, and more where values are far from zero beside their range.
    """
    v = np.asarray(list(values), dtype=np.float64)
    good = v[np.isfinite(v)]
    span, size = (float(np.ptp(good)), float(np.abs(good).max())) if len(good) else (0.0, 0.0)
    digits = 5 + max(0, math.floor(math.log10(size / span))) if span else 12
    return [float(f"{x:.{min(digits, 15)}g}") if math.isfinite(x) else None for x in v.tolist()]


@dataclass(frozen=True)
class Figure:
    """One figure.

    Attributes:
        title: Its caption.
        traces: Of plotly, as plain data; those that a legend hides have a ``legendgroup``.
        x: Title and other settings of the axis.
        y: Likewise.
        note: A line below the caption.
        numbers: What it shows, or some of it, as a table.
        layout: Further settings.
        rows: How many lines of text stand along its y axis; 0: as high as any figure.
    """

    title: str
    traces: Sequence[Trace]
    x: Mapping[str, Any]
    y: Mapping[str, Any]
    note: str = ""
    numbers: pd.DataFrame | None = None
    layout: Mapping[str, Any] = field(default_factory=dict)
    rows: int = 0

    def html(self, name: str, about: str) -> str:
        """The figure as HTML.

        Args:
            name: By which the page finds it.
            about: Where it stands, to tell figures of one caption apart.
        """
        axes = {"xaxis": _safe(self.x), "yaxis": _safe(self.y)}
        data = {"traces": [_safe(t) for t in self.traces], "layout": {**self.layout, **axes}}
        text = json.dumps(data, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
        said = f"{about}: {self.title}" if about else self.title
        alt = f"{said}. {self.y.get('title', '')} against {self.x.get('title', '')}. {self.note}"
        note = f"<small>{escape(self.note)}</small>" if self.note else ""
        more = ""
        if self.numbers is not None and len(self.numbers):
            more = f"<details><summary>Numbers</summary>{table(said, self.numbers)}</details>"
        high = f' style="height:{4 + max(1.5 * self.rows, 8):g}rem"' if self.rows else ""
        return (
            f"<figure><figcaption>{escape(self.title)}{note}</figcaption>"
            f'<div class="chart" id="{name}"{high} role="img" aria-label="{escape(alt.strip())}">'
            f"<p>This figure is being drawn.</p></div>{more}"
            f'<script type="application/json" id="{name}-data">{text}</script></figure>'
        )


def _safe(said: Mapping[str, Any]) -> dict[str, Any]:
    """Texts in which plotly finds no markup: names come from users."""
    return {
        key: escape(value, quote=False) if key in ("title", "name") else value
        for key, value in said.items()
    }


class Panels:
    """Figures side by side, numbered through the page, with one legend for all of a group.

    Args:
        curves: How many curves the page has to show.

    Attributes:
        most: Points of each curve that are kept, so that a page stays small.
    """

    def __init__(self, curves: int = 1) -> None:
        self.most = max(LEAST, min(MOST, IN_ALL // max(curves, 1)))
        self._groups, self._figures = count(), count()

    def html(
        self, figures: Iterable[Figure | None], labels: Sequence[str] = (), about: str = ""
    ) -> str:
        """A group of figures as HTML.

        Args:
            figures: Of the group; None is left out.
            labels: Of its curves, the k-th of which has the legend group ``k``.
            about: What the group is about.
        """
        shown = [figure for figure in figures if figure is not None and figure.traces]
        if not shown:
            return ""
        group = f"g{next(self._groups)}"
        drawn = "".join(figure.html(f"f{next(self._figures)}", about) for figure in shown)
        return f'{_legend(group, labels)}<div class="panels" id="{group}">{drawn}</div>'


def _legend(group: str, labels: Sequence[str]) -> str:
    if not labels:
        return ""
    entries = "".join(
        f'<li><button type="button" value="{k}" aria-pressed="true">'
        '<svg width="28" height="10" aria-hidden="true"><line x1="0" y1="5" x2="28" y2="5" '
        f'stroke="var(--{colour(k)[1:]})" stroke-width="3" '
        f'stroke-dasharray="{STROKES[k % len(STROKES)]}"/></svg>{escape(label)}</button></li>'
        for k, label in enumerate(labels)
    )
    return f'<ul class="legend" aria-label="Curves" data-panels="{group}">{entries}</ul>'


@dataclass(frozen=True)
class Curve:
    """Runs of one label as a median with quartiles, step by step.

    Attributes:
        label: Of the runs.
        seeds: How many runs there are.
        frame: Columns ``x``, ``median``, ``low``, ``high``.
    """

    label: str
    seeds: int
    frame: pd.DataFrame

    @classmethod
    def of(cls, label: str, tables: Sequence[pd.DataFrame], x: str, y: str) -> Curve | None:
        """The curve of some runs; None where they have no finite value.

        Seeds are matched by step; where ``x`` is a time, its median over the seeds is taken.
        """
        kept = [t[list(dict.fromkeys(("step", x, y)))] for t in tables if {x, y} <= set(t.columns)]
        if not kept:
            return None
        whole = pd.concat(kept, ignore_index=True).replace([np.inf, -np.inf], np.nan)
        steps = whole.dropna(subset=[y]).groupby("step")
        if not len(steps):
            return None
        quartiles = {name: steps[y].quantile(q) for name, q in _QUARTILES.items()}
        return cls(label, len(kept), pd.DataFrame({"x": steps[x].median(), **quartiles}))

    def thinned(self, most: int) -> pd.DataFrame:
        """Some of its points, first and last among them, evenly spread."""
        chosen = np.linspace(0, len(self.frame) - 1, min(most, len(self.frame))).round().astype(int)
        return self.frame.iloc[np.unique(chosen)]


_QUARTILES = {"low": 0.25, "median": 0.5, "high": 0.75}


def band(
    curve: Curve, k: int, least: float | None = None, steps: bool = False, most: int = MOST
) -> list[Trace]:
    """A curve and the band between its quartiles.

    Args:
        curve: What is drawn.
        k: Its number, which says how it looks.
        least: Smaller values are drawn here, for logarithmic axes.
        steps: Whether values hold until the next one.
        most: Points that are kept.
    """
    points = curve.thinned(most)
    points = points.assign(**{name: points[name].clip(lower=least) for name in _QUARTILES})
    common: Trace = {
        "type": "scatter",
        "mode": "lines",
        "legendgroup": str(k),
        "name": curve.label,
        "x": plain(points["x"]),
    }
    shape = "hv" if steps else "linear"
    traces = []
    if curve.seeds > 1:
        edge = {**common, "hoverinfo": "skip"}
        none = {"width": 0, "shape": shape}
        fill = {"fill": "tonexty", "fillcolor": f"{colour(k)}/0.18"}
        traces.append({**edge, "y": plain(points["low"]), "line": none})
        traces.append({**edge, "y": plain(points["high"]), "line": none, **fill})
    line = {"color": colour(k), "dash": dash(k), "width": 2, "shape": shape}
    mode = "lines" if len(points) > 1 else "markers"
    look = {"mode": mode, "line": line, "marker": {"color": colour(k), "size": 8}}
    traces.append({**common, **look, "y": plain(points["median"])})
    return traces


def numbers(curves: Iterable[Curve], x: str) -> pd.DataFrame:
    """Some values of each curve, as a table."""
    parts = [
        curve.thinned(ROWS).assign(curve=curve.label)[["curve", "x", "median", "low", "high"]]
        for curve in curves
    ]
    words = {"x": x, "low": "lower quartile", "high": "upper quartile"}
    return pd.concat(parts, ignore_index=True).rename(columns=words)
