"""Pages of campaigns and studies: what is on them, for whom, and that they need nothing else."""

import html
import json
import re
import sys
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from bo_stream.cli.config import read_config
from bo_stream.cli.load_campaign import create_or_continue
from bo_stream.cli.reports.campaign import PageLimits, campaign_page
from bo_stream.cli.reports.figures import Figure, plain
from bo_stream.scores import paired_bootstrap
from tests.bo_stream.cli.pages import chromium, made, needs_chromium

pytest.importorskip("plotly")
pytest.importorskip("sqlalchemy")


class Outline(HTMLParser):
    """Tags with their attributes, and the text of headings, captions and cells."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.said: list[tuple[str, str]] = []
        self._open = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._open = tag

    def handle_data(self, data: str) -> None:
        if data.strip():
            self.said.append((self._open, data.strip()))

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attrs for name, attrs in self.tags if name == tag]

    def texts(self, *tags: str) -> list[str]:
        return [text for tag, text in self.said if tag in tags]


def figures(page: str) -> dict[str, dict]:
    """What figures draw, by the words for those who do not see them."""
    said = Outline(page).all("div")
    return {
        str(d["aria-label"]): json.loads(
            re.search(rf'id="{d["id"]}-data">(.*?)</script>', page, re.S)[1]  # type: ignore[index]
        )
        for d in said
        if d.get("role") == "img"
    }


def check(path: Path) -> str:
    """What holds for every page; its text."""
    page = path.read_text(encoding="utf-8")
    assert len(page.encode()) < 5e6
    found = Outline(page)
    assert found.all("html") == [{"lang": "en"}]
    assert any(m.get("name") == "viewport" for m in found.all("meta"))
    assert all(len(found.all(tag)) == 1 for tag in ("header", "main", "nav", "footer", "h1"))
    levels = [int(tag[1]) for tag, _ in found.tags if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1 and all(b <= a + 1 for a, b in zip(levels, levels[1:], strict=False))
    ids = [attrs["id"] for _, attrs in found.tags if "id" in attrs]
    assert len(set(ids)) == len(ids)
    assert {a["href"] for a in found.all("a")} <= {f"#{id}" for id in ids}

    charts = [d for d in found.all("div") if d.get("class") == "chart"]
    assert all(d["role"] == "img" and d["aria-label"] for d in charts)
    assert len(charts) == len(found.all("figure")) == len(found.all("figcaption"))
    assert len(found.all("caption")) == len(found.all("table"))
    assert all("scope" in attrs for attrs in found.all("th"))
    scrolled = [d for d in found.all("div") if d.get("class") == "scroll"]
    assert all(d["tabindex"] == "0" and d["aria-label"] for d in scrolled)

    assert not re.search(r"https?:", page)  # plotly's own are packed
    assert [a for _, a in found.tags if "src" in a] == []
    assert found.all("link") == [{"rel": "icon", "href": "data:,"}]
    policies = [m["content"] for m in found.all("meta") if "http-equiv" in m]
    assert len(policies) == 1 and str(policies[0]).startswith("default-src 'none'")
    return page


def test_a_campaign(tmp_path: Path, bo, oven: Path) -> None:
    assert bo("run", "oven.toml")[0] == 0
    oven.write_text(oven.read_text().replace("budget = 7", "budget = 20"))
    assert bo("suggest", "oven.toml", "-q", 2)[0] == 0
    before = (tmp_path / "oven.db").read_bytes()
    code, out, err = bo("report", "oven.toml")
    assert (code, out, err) == (0, "Wrote report.html.\n", "")
    assert (tmp_path / "oven.db").read_bytes() == before

    page = check(tmp_path / "report.html")
    said = Outline(page)
    assert said.texts("h2") == [
        "Current state",
        "Where to measure next",
        "Running trials",
        "Outcomes",
        "The model along each input",
        "Maps of the model",
        "Trials",
        "Settings",
    ]
    trials = create_or_continue(read_config(oven)).campaign.trials()
    best = trials.loc[trials["y"].idxmin()]
    at = f"pressure = {best['pressure']:.6g} bar, rate = {best['rate']:.6g}"
    assert f"{best['y']:.6g} at {at} (trial {best.name})" in page
    assert "minimise: 7 told, 2 running" in page and "energy (kWh)" in page
    assert "<td>0.0001 to 0.1, on a logarithmic scale</td>" in page and "<td>warped</td>" in page
    for row in trials.itertuples():
        assert f'>{row.Index}</th><td class="number">{row.pressure:.6g}</td>' in page

    drawn = figures(page)
    assert len(drawn) == 5
    outcomes = next(f for name, f in drawn.items() if name.startswith("Outcomes by trial"))
    told = trials[trials["status"] == "told"]
    assert np.allclose(outcomes["traces"][1]["y"], told["y"].cummin(), rtol=1e-4)
    assert outcomes["layout"]["shapes"][0]["y0"] == 1.0
    rate = next(f for name, f in drawn.items() if "Along rate" in name)
    assert rate["layout"]["xaxis"]["type"] == "log"
    low, high, mean = (np.array(t["y"]) for t in rate["traces"][:3])
    assert (low <= mean).all() and (mean <= high).all()
    at = trials.loc[[best.name], ["pressure", "rate"]]
    predicted = create_or_continue(read_config(oven)).campaign.predict(at)["mean"].item()
    assert np.interp(np.log(best["rate"]), np.log(rate["traces"][2]["x"]), mean) == pytest.approx(
        predicted, rel=0.02
    )

    next_trial = page.split("<caption>The next trial</caption>")[1].split("</table>")[0]
    assert bo("suggest", "oven.toml", "--csv", "next.csv")[0] == 0
    for name, value in pd.read_csv(tmp_path / "next.csv").iloc[0][["pressure", "rate"]].items():
        assert f">{value:.6g}</td>" in next_trial, name


def test_a_campaign_over_a_pool(tmp_path: Path, bo, survey: Path) -> None:
    campaign = create_or_continue(read_config(survey)).campaign
    batch = campaign.ask(9)
    campaign.tell(batch.assign(y=batch["lon"] - batch["lat"]).iloc[:7])
    campaign.fail(batch.index[7:8], "no <b>access</b>")
    assert bo("report", "survey.toml", "--out", "s.html")[0] == 0
    page = check(tmp_path / "s.html")
    drawn = figures(page)
    mean = next(f for name, f in drawn.items() if name.startswith("Predicted mean of moisture"))
    assert mean["traces"][0]["type"] == "heatmap" and len(mean["traces"][0]["z"]) == 25
    names = [trace["name"] for trace in mean["traces"]]
    assert names == ["", "measured", "running", "next"] and len(mean["traces"][1]["x"]) == 7
    assert "learn: 7 told, 1 running, 1 failed" in page
    assert "no &lt;b&gt;access&lt;/b&gt;" in page and "the last outcome (trial 6)" in page
    assert "best" not in Outline(page).texts("th")


def test_a_large_campaign_has_a_small_page(tmp_path: Path, bo, survey: Path) -> None:
    campaign = create_or_continue(read_config(survey)).campaign
    campaign.tell(campaign.ask(8).assign(y=[1.0, 2.0] * 4))
    facts = {"goal": "learn", "trials": "8 told"}
    limits = PageLimits(trials=2, places=10, outcomes=3)
    html = campaign_page(campaign, facts, "moisture", None, limits)
    (tmp_path / "report.html").write_text(html, encoding="utf-8")
    drawn = figures(page := check(tmp_path / "report.html"))
    mean = next(f for name, f in drawn.items() if "One in 3 places is drawn." in name)
    assert mean["traces"][0]["type"] == "scatter" and len(mean["traces"][0]["x"]) == 9
    slice_ = next(f for name, f in drawn.items() if "the last 3 outcomes" in name)
    assert len(slice_["traces"][3]["x"]) == 3
    assert "The first 6 are omitted" in page and page.count("<td>told</td>") == 2


def test_a_new_campaign(tmp_path: Path, bo, oven: Path) -> None:
    assert bo("suggest", "oven.toml")[0] == 0
    assert bo("report", "oven.db", "oven")[0] == 0
    page = check(tmp_path / "report.html")
    assert "Until there are 2 outcomes, trials are spread over the space." in page
    assert figures(page) == {} and "The model along each input" not in page


def test_a_study(tmp_path: Path, bo) -> None:
    folder = made(tmp_path / "study", {"wiski": "WISKI", "exact": "<b>Exact</b> GP"}, 5, 40)
    pd.DataFrame({"surrogate": ["WISKI"], "s/step": [0.125]}).to_csv(folder / "summary.csv")
    code, out, err = bo("report", "study")
    assert (code, out, err) == (0, "Wrote study/report.html.\n", "")
    page = check(folder / "report.html")
    assert Outline(page).texts("h2") == [
        "Results in numbers",
        "Regret",
        "Differences between methods",
        "Seconds per step",
        "State and predictions",
        "Configuration of the runs",
    ]
    assert "10 runs; methods: 2, seeds: 5, tasks: 1" in page
    assert "summary.csv" in page and "Abacus 3" in page and "problem.dim" in page
    assert "<b>" not in page and "&lt;b&gt;Exact&lt;/b&gt; GP" in page
    assert page.count('aria-pressed="true"') == 2 * 3

    drawn = figures(page)
    assert len(drawn) == 4 + 1 + 4 + 1
    name = next(n for n in drawn if "recommended point against observations" in n)
    assert name.startswith("levy, dim 2: ")
    low, high, median = drawn[name]["traces"][3:6]  # the second in the order of the alphabet
    runs = np.array([pd.read_csv(folder / f"wiski_{s}.csv")["inference_regret"] for s in range(5)])
    for trace, q in ((low, 0.25), (high, 0.75), (median, 0.5)):
        expected = np.quantile(np.delete(runs, 1, 1), q, axis=0).clip(1e-3)
        assert np.allclose(trace["y"], expected, rtol=1e-4) and trace["line"]["shape"] == "hv"
    assert median["name"] == "WISKI" and median["x"][:3] == [10, 16, 19]
    clock = next(f for n, f in drawn.items() if "recommended point against wall-clock" in n)
    assert clock["layout"]["xaxis"]["type"] == clock["layout"]["yaxis"]["type"] == "log"
    assert any("Acquisition against observations" in n for n in drawn)

    ends = {
        stem: [
            np.log(pd.read_csv(folder / f"{stem}_{s}.csv")["inference_regret"].tail(4)).mean()
            for s in range(5)
        ]
        for stem in ("exact", "wiski")
    }
    d = paired_bootstrap(ends["exact"], ends["wiski"])
    cells = "".join(f'<td class="number">{v:.4g}</td>' for v in (d.pairs, d.median, d.low, d.high))
    assert f"GP - WISKI</th>{cells}" in page


def test_a_study_of_streams(tmp_path: Path, bo) -> None:
    columns = {
        "stream_rmse": "Error of all batches so far, each before it was observed",
        "stream_nlpd": "Negative log density of all batches so far, each before it was observed",
        "stream_accuracy": "Accuracy on all batches so far, each before it was observed",
        "log_loss": "Log loss",
        "predict_seconds": "Prediction",
        "fit_evaluation_seconds": "One evaluation of a fit, with gradient",
    }
    n = np.array([100, 1000, 99_999])
    for label, factor in (("narrow", 1), ("wide", 1.001)):
        (tmp_path / label).mkdir()
        values = {name: np.array([0.5, 0.25, 0.125]) for name in columns}
        rows = pd.DataFrame({"step": range(3), "n": np.rint(factor * n), **values})
        rows.to_csv(tmp_path / label / "wiski_0.csv", index=False)
        assert bo("report", label)[0] == 0
        drawn = figures(check(tmp_path / label / "report.html"))
        for title in columns.values():
            figure = next(f for said, f in drawn.items() if f"{title} against obs" in said)
            assert figure["traces"][0]["y"] == [0.5, 0.25, 0.125], title
            assert figure["layout"]["xaxis"].get("type") == (
                "log" if np.rint(factor * n)[-1] >= 1000.0 * np.rint(factor * n)[0] else None
            )


@pytest.mark.parametrize(("last", "scale"), [(499, None), (500, "log")])
def test_short_curves_are_not_squeezed_by_long_ones(
    tmp_path: Path, bo, last: int, scale: str | None
) -> None:
    for label, n in (("short", [10, 100]), ("long", [10, last])):
        rows = pd.DataFrame({"step": range(2), "n": n, "simple_regret": [2.0, 1.0]})
        rows.to_csv(tmp_path / f"{label}_0.csv", index=False)
    assert bo("report", ".")[0] == 0
    drawn = figures(check(tmp_path / "report.html"))
    figure = next(f for said, f in drawn.items() if "observed against observations" in said)
    assert figure["layout"]["xaxis"].get("type") == scale


def test_digits_follow_the_range() -> None:
    assert plain([5_012_345.5, 5_012_350.25]) == [5_012_345.5, 5_012_350.25]
    assert plain([1.23456789e-7, 2.0, np.nan, np.inf]) == [1.2346e-7, 2.0, None, None]
    assert plain([0.1234567, 0.1234567]) == [0.1234567, 0.1234567] and plain([]) == []


def test_no_text_ends_a_figure() -> None:
    figure = Figure("a < b", [{"text": ["</script>"], "name": "<i>"}], {"title": "<b>"}, {})
    page = figure.html("f0", "")
    assert page.count("</script>") == 1 and "<i>" not in page and "<b>" not in page
    (drawn,) = figures(page).values()
    assert drawn["traces"] == [{"text": ["</script>"], "name": "&lt;i&gt;"}]


def test_tasks_stand_apart(tmp_path: Path, bo) -> None:
    folder = made(tmp_path / "study", {"wiski": "WISKI"}, 2, 5)
    for path in made(tmp_path / "other", {"wiski_b": "WISKI"}, 1, 5, "ackley").iterdir():
        path.rename(folder / path.name)
    assert bo("report", "study", "--out", "r.html")[0] == 0
    page = check(tmp_path / "r.html")
    assert "3 runs; methods: 1, seeds: 2, tasks: 2" in page
    assert Outline(page).texts("h3")[:2] == ["ackley, dim 2", "levy, dim 2"]
    assert "Differences" not in page


@pytest.mark.slow
def test_a_study_of_a_hundred_runs_stays_small(tmp_path: Path, bo) -> None:
    labels = {f"m{k}": f"method {k:02d}" for k in range(25)}
    folder = made(tmp_path / "study", labels, 4, 300, None)
    assert bo("report", "study")[0] == 0
    page = check(folder / "report.html")
    assert 2e6 < len(page.encode()) < 4e6
    drawn = next(f for n, f in figures(page).items() if "recommended point against obs" in n)
    assert [t["x"][0] for t in drawn["traces"]] == [10] * 75  # thinned, both ends kept
    assert [t["x"][-1] for t in drawn["traces"]] == [910] * 75
    assert page.count("- method 00</th>") == 24  # the best, whom all are compared with


def test_what_cannot_be_reported_is_refused(
    tmp_path: Path, bo, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "results").mkdir()
    made(tmp_path / "results" / "demo", {"wiski": "WISKI"}, 1, 2)
    code, out, err = bo("report", "results")
    assert (code, out) == (2, "") and "Name one of its folders: demo." in err
    code, _, err = bo("report", "results/demo", "oven")
    assert code == 2 and "Leave out the name 'oven'" in err
    code, _, err = bo("report", "results/demo", "--out", "none/r.html")
    assert code == 2 and "There is no folder" in err
    code, _, err = bo("report", "none.db")
    assert code == 2 and "There is no store" in err
    monkeypatch.setitem(sys.modules, "plotly", None)
    code, _, err = bo("report", "results/demo")
    assert code == 2 and "pip install 'bo_stream[report]'" in err
    assert not list(tmp_path.rglob("*.html"))


PRESSED = """<script>
(async () => {
  const root = document.documentElement;
  while (!root.dataset.drawn) await new Promise((go) => setTimeout(go, 20));
  const shown = () => document.querySelectorAll("#g0 .scatterlayer .js-line").length;
  root.dataset.before = shown();
  document.querySelector(".legend button").click();
  await new Promise((go) => setTimeout(go, 500));
  root.dataset.after = shown();
})();
</script></body>"""


@needs_chromium
@pytest.mark.parametrize("light", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_chromium_draws_every_figure_without_an_error(tmp_path: Path, bo, light: bool) -> None:
    folder = made(tmp_path / "study", {"wiski": "WISKI", "exact": "Exact GP"}, 3, 20)
    assert bo("report", "study")[0] == 0
    page = folder / "report.html"
    page.write_text(check(page).replace("</body>", PRESSED), encoding="utf-8")
    done = chromium(page, light, "--dump-dom")
    assert [line for line in done.stderr.splitlines() if "CONSOLE" in line] == []
    root = re.search(r"<html [^>]*>", done.stdout)[0]  # type: ignore[index]
    assert 'data-drawn="10"' in root
    counts = [int(n) for n in re.findall(r'data-(?:before|after)="(\d+)"', root)]
    assert sorted(counts) == [4 * 3, 4 * 6]  # four panels; a median and two edges of a band each
    ink = "28, 33, 38" if light else "232, 236, 240"
    assert f"fill: rgb({ink})" in html.unescape(done.stdout)
    picture = tmp_path / "page.png"
    chromium(page, light, f"--screenshot={picture}", "--window-size=1280,2400")
    assert picture.stat().st_size > 50_000
