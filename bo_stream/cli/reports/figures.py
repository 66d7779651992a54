"""Figures of a page: a drawing by plotly with a caption, a text alternative and a table.

Colours are names (``@c0``, ``@c0/0.2``) that the page replaces by those of its light or dark theme.
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
"""Maximum and minimum number of points per curve, and approximate number of all curves together,
which keep pages small."""
ROWS = 5
"""Rows of a curve in the table below its figure."""

Trace = dict[str, Any]


def colour(k: int) -> str:
    """Name of the k-th colour."""
    return f"@c{k % COLOURS}"


def dash(k: int) -> str:
    """The k-th line style; colour and style together repeat after 40 curves."""
    return DASHES[k % len(DASHES)]


def plain(values: Iterable[Any]) -> list[Any]:
    """Numbers rounded to a ten-thousandth of their range; None for those that are not finite.

    These are five digits, or more if the values are large compared with their range. Texts and
    booleans become texts.
    """
    listed = list(values)
    if any(isinstance(value, str | bool | np.bool_) for value in listed):
        return [str(value) for value in listed]
    v = np.asarray(listed, dtype=np.float64)
    good = v[np.isfinite(v)]
    span, size = (float(np.ptp(good)), float(np.abs(good).max())) if len(good) else (0.0, 0.0)
    digits = 5 + max(0, math.floor(math.log10(size / span))) if span else 12
    return [float(f"{x:.{min(digits, 15)}g}") if math.isfinite(x) else None for x in v.tolist()]


@dataclass(frozen=True)
class Figure:
    """One figure.

    Attributes:
        title: Its caption.
        traces: Traces of plotly as plain data; those that a legend can hide have a ``legendgroup``.
        x: Title and other settings of the x axis.
        y: Title and other settings of the y axis.
        note: A line below the caption.
        numbers: A table of the values shown, or of some of them.
        layout: Further settings of the layout.
        rows: Number of text labels along the y axis; 0: the default height.
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
            name: Its id in the page.
            about: Its context, which distinguishes figures with the same caption.
        """
        axes = {"xaxis": _safe(self.x), "yaxis": _safe(self.y)}
        data = {"traces": [_safe(t) for t in self.traces], "layout": {**self.layout, **axes}}
        text = json.dumps(data, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
        title = f"{about}: {self.title}" if about else self.title
        alt = f"{title}. {self.y.get('title', '')} against {self.x.get('title', '')}. {self.note}"
        note = f"<small>{escape(self.note)}</small>" if self.note else ""
        more = ""
        if self.numbers is not None and len(self.numbers):
            more = f"<details><summary>Numbers</summary>{table(title, self.numbers)}</details>"
        high = f' style="height:{4 + max(1.5 * self.rows, 8):g}rem"' if self.rows else ""
        return (
            f"<figure><figcaption>{escape(self.title)}{note}</figcaption>"
            f'<div class="chart" id="{name}"{high} role="img" aria-label="{escape(alt.strip())}">'
            f"<p>This figure is being drawn.</p></div>{more}"
            f'<script type="application/json" id="{name}-data">{text}</script></figure>'
        )


def _safe(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings whose texts are escaped, since plotly renders markup and users choose names."""
    return {
        key: escape(value, quote=False) if key in ("title", "name") else value
        for key, value in settings.items()
    }


class Panels:
    """Groups of figures, each with a common legend, with ids that are unique in the page.

    Args:
        curves: Number of curves in the page.

    Attributes:
        most: Maximum number of points per curve.
    """

    def __init__(self, curves: int = 1) -> None:
        self.most = max(LEAST, min(MOST, IN_ALL // max(curves, 1)))
        self._groups, self._figures = count(), count()

    def html(
        self, figures: Iterable[Figure | None], labels: Sequence[str] = (), about: str = ""
    ) -> str:
        """A group of figures as HTML.

        Args:
            figures: Its figures; None is left out.
            labels: Labels of its curves; the k-th has the legend group ``k``.
            about: Context of the group.
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
    """Median and quartiles of several runs, step by step.

    Attributes:
        label: Label of the runs.
        seeds: Number of runs.
        frame: Columns ``x``, ``median``, ``low``, ``high``.
    """

    label: str
    seeds: int
    frame: pd.DataFrame

    @classmethod
    def of(cls, label: str, tables: Sequence[pd.DataFrame], x: str, y: str) -> Curve | None:
        """The curve of several runs; None if they have no finite value.

        Runs are matched by step. At every step, x is its median over the runs.
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
        """At most so many of its points, evenly spread and including the first and the last."""
        chosen = np.linspace(0, len(self.frame) - 1, min(most, len(self.frame))).round().astype(int)
        return self.frame.iloc[np.unique(chosen)]


_QUARTILES = {"low": 0.25, "median": 0.5, "high": 0.75}


def band(
    curve: Curve, k: int, least: float | None = None, steps: bool = False, most: int = MOST
) -> list[Trace]:
    """A curve and the band between its quartiles.

    Args:
        curve: The curve.
        k: Its number, which determines its colour and line style.
        least: Lower bound of the values drawn, for logarithmic axes.
        steps: Whether a value holds until the next one.
        most: Maximum number of points.
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
    """A table of some values of each curve."""
    parts = [
        curve.thinned(ROWS).assign(curve=curve.label)[["curve", "x", "median", "low", "high"]]
        for curve in curves
    ]
    words = {"x": x, "low": "lower quartile", "high": "upper quartile"}
    return pd.concat(parts, ignore_index=True).rename(columns=words)
