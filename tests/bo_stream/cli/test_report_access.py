"""Pages searched by axe-core, in Chromium, for what keeps people from using them."""

import html
import json
import re
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from bo_stream.cli.page import Section, page
from tests.bo_stream.cli.pages import chromium, needs_chromium

pytest.importorskip("jinja2")
pytest.importorskip("sqlalchemy")

FOUND = find_spec("axe_core_python")
pytestmark = [
    needs_chromium,
    pytest.mark.skipif(FOUND is None, reason="axe-core is not installed: axe-core-python has it"),
]
LOOKS = pytest.mark.parametrize("light", [True, pytest.param(False, marks=pytest.mark.slow)])
FAULTS = {"serious", "critical"}

RUN = """<script>
(async () => {
  const root = document.documentElement;
  for (const more of document.querySelectorAll("details")) more.open = true;
  root.dataset.axe = JSON.stringify(await axe.run());
})();
</script></body>"""


def searched(path: Path, light: bool) -> dict[str, Any]:
    """What axe-core says of a page, its details open."""
    assert FOUND is not None and FOUND.origin is not None
    axe = Path(FOUND.origin).with_name("axe.min.js").read_text(encoding="utf-8")
    copy = path.with_name("searched.html")
    text = path.read_text(encoding="utf-8").replace("</body>", RUN)
    copy.write_text(text.replace("<script>", f"<script>{axe}</script><script>", 1), "utf-8")
    done = chromium(copy, light, "--dump-dom")
    said = re.search(r'data-axe="([^"]*)"', done.stdout)
    assert said, done.stderr
    return dict(json.loads(html.unescape(said[1])))


def faults(said: dict[str, Any]) -> list[str]:
    """Rules broken badly, and where."""
    return [
        f"{rule['id']} ({rule['impact']}): {node['html'][:200]}"
        for rule in said["violations"]
        if rule["impact"] in FAULTS
        for node in rule["nodes"]
    ]


@pytest.mark.slow
@LOOKS
def test_the_page_of_a_campaign(tmp_path: Path, bo, oven: Path, light: bool) -> None:
    assert bo("run", "oven.toml")[0] == 0
    oven.write_text(oven.read_text().replace("budget = 7", "budget = 20"))
    assert bo("suggest", "oven.toml", "-q", 2)[0] == 0
    assert bo("report", "oven.toml")[0] == 0
    said = searched(tmp_path / "report.html", light)
    assert {"color-contrast", "link-name", "html-has-lang"} <= {r["id"] for r in said["passes"]}
    assert faults(said) == []


def test_a_fault_is_found(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    pale = page("Title", "About it.", [Section("Part", "Pale")])
    path.write_text(pale.replace("<p>Pale", "<p style='color: #c0c0c0'>Pale"), encoding="utf-8")
    (fault,) = faults(searched(path, True))
    assert fault.startswith("color-contrast (serious)") and "Pale" in fault
