"""Pages and pictures of campaigns: what is on them, for whom, and that they need nothing else."""

import base64
import re
import sys
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from bo_stream.campaign import found
from bo_stream.campaign.figures import slices
from bo_stream.cli.campaign_page import campaign_page
from bo_stream.cli.loading import create_or_continue
from tests.bo_stream.cli.pages import chromium, needs_chromium

pytest.importorskip("jinja2")
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


def pictures(page: str) -> dict[str, str]:
    """SVG of the pictures of a page, by the words for those who do not see them."""
    found = Outline(page).all("img")
    prefix = "data:image/svg+xml;base64,"
    return {
        str(i["alt"]): base64.b64decode(str(i["src"]).removeprefix(prefix)).decode() for i in found
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

    images = found.all("img")
    assert all(i["alt"] for i in images)
    assert len(images) == len(found.all("figure")) == len(found.all("figcaption"))
    assert len(found.all("caption")) == len(found.all("table"))
    assert all("scope" in attrs for attrs in found.all("th"))
    scrolled = [d for d in found.all("div") if d.get("class") == "scroll"]
    assert all(d["tabindex"] == "0" and d["aria-label"] for d in scrolled)

    assert not re.search(r"https?:", page)
    assert all(str(a["src"]).startswith("data:") for _, a in found.tags if "src" in a)
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
    trials = create_or_continue(oven).campaign.trials()
    best = trials.loc[trials["y"].idxmin()]
    at = f"pressure = {best['pressure']:.6g} bar, rate = {best['rate']:.6g}"
    assert f"{best['y']:.6g} at {at} (trial {best.name})" in page
    assert "minimise: 7 told, 2 running" in page and "energy (kWh)" in page
    assert "<td>0.0001 to 0.1, on a logarithmic scale</td>" in page and "<td>warped</td>" in page
    for row in trials.itertuples():
        assert f'>{row.Index}</th><td class="number">{row.pressure:.6g}</td>' in page

    drawn = pictures(page)
    assert len(drawn) == 3 and all("<svg" in svg for svg in drawn.values())
    assert any("Mean and two standard deviations; dots: all outcomes" in name for name in drawn)

    next_trial = page.split("<caption>The next trial</caption>")[1].split("</table>")[0]
    assert bo("suggest", "oven.toml", "--csv", "next.csv")[0] == 0
    for name, value in pd.read_csv(tmp_path / "next.csv").iloc[0][["pressure", "rate"]].items():
        assert f">{value:.6g}</td>" in next_trial, name


def test_a_campaign_over_a_pool(tmp_path: Path, bo, survey: Path) -> None:
    campaign = create_or_continue(survey).campaign
    batch = campaign.ask(9)
    campaign.tell(batch.assign(y=batch["lon"] - batch["lat"]).iloc[:7])
    campaign.fail(batch.index[7:8], "no <b>access</b>")
    assert bo("report", "survey.toml", "--out", "s.html")[0] == 0
    page = check(tmp_path / "s.html")
    assert any(name.startswith("Prediction of moisture") for name in pictures(page))
    assert "learn: 7 told, 1 running, 1 failed" in page
    assert "no &lt;b&gt;access&lt;/b&gt;" in page and "the last outcome (trial 6)" in page
    assert "best" not in Outline(page).texts("th")


def test_a_large_campaign_has_a_small_page(tmp_path: Path, bo, survey: Path) -> None:
    loaded = create_or_continue(survey)
    loaded.campaign.tell(loaded.campaign.ask(8).assign(y=[1.0, 2.0] * 4))
    html = campaign_page(loaded, most_trials=2, most_places=10, most_outcomes=3)
    (tmp_path / "report.html").write_text(html, encoding="utf-8")
    page = check(tmp_path / "report.html")
    shown = pictures(page)
    assert any("the last 3 outcomes" in name for name in shown)
    assert any("One in 3 places is drawn." in name for name in shown)
    assert "The first 6 are omitted" in page and page.count("<td>told</td>") == 2


def test_a_new_campaign(tmp_path: Path, bo, oven: Path) -> None:
    assert bo("suggest", "oven.toml")[0] == 0
    assert bo("report", "oven.db", "oven")[0] == 0
    page = check(tmp_path / "report.html")
    assert "Until there are 2 outcomes, trials are spread over the space." in page
    assert pictures(page) == {} and "The model along each input" not in page


def test_pictures_show_the_outcomes_and_the_prediction(bo, oven: Path) -> None:
    assert bo("run", "oven.toml")[0] == 0
    campaign = create_or_continue(oven).campaign
    told = found.told(campaign.ledger)
    (ax,) = campaign.plot(optimum=1.0).axes
    dots, best, optimum = (np.asarray(line.get_ydata(), dtype=float) for line in ax.lines)
    assert np.array_equal(dots, told["y"]) and np.array_equal(best, told["y"].cummin())
    assert set(optimum) == {1.0}
    _, along_rate = slices(campaign.state).axes
    assert along_rate.get_xscale() == "log"
    mean = along_rate.lines[0].get_xydata()
    at = campaign.best()[["pressure", "rate"]].to_frame().T.astype(float)
    predicted = campaign.predict(at)["mean"].item()
    read = np.interp(np.log(at["rate"].item()), np.log(mean[:, 0]), mean[:, 1])
    assert read == pytest.approx(predicted, rel=0.02)


def test_what_cannot_be_reported_is_refused(
    tmp_path: Path, bo, oven: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert bo("suggest", "oven.toml")[0] == 0
    code, _, err = bo("report", "oven.toml", "--out", "none/r.html")
    assert code == 2 and "There is no folder" in err
    code, _, err = bo("report", "none.db")
    assert code == 2 and "There is no store" in err
    monkeypatch.setitem(sys.modules, "jinja2", None)
    code, _, err = bo("report", "oven.toml")
    assert code == 2 and "pip install 'bo_stream[report]'" in err
    assert not list(tmp_path.rglob("*.html"))


@needs_chromium
def test_chromium_shows_the_page_without_an_error(tmp_path: Path, bo, oven: Path) -> None:
    assert bo("run", "oven.toml")[0] == 0 and bo("report", "oven.toml")[0] == 0
    done = chromium(tmp_path / "report.html", True, "--dump-dom")
    assert [line for line in done.stderr.splitlines() if "CONSOLE" in line] == []
    picture = tmp_path / "page.png"
    chromium(tmp_path / "report.html", True, f"--screenshot={picture}", "--window-size=1280,2400")
    assert picture.stat().st_size > 50_000
