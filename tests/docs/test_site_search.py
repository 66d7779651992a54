"""The site can be searched after it was opened from a folder, without a server."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.bo_stream.cli.pages import CHROMIUM, needs_chromium
from tests.docs.pages import ROOT

CONFIG = """
site_name: test
docs_dir: {pages}
site_dir: {site}
theme: {{name: material, font: false}}
plugins: [search, offline]
extra: {{polyfills: [iframe-worker.js]}}
"""


@needs_chromium
def test_a_page_opened_from_a_folder_finds_another_one(tmp_path: Path) -> None:
    pytest.importorskip("mkdocs")
    pages = tmp_path / "pages"
    pages.mkdir()
    (pages / "iframe-worker.js").write_text((ROOT / "docs" / "iframe-worker.js").read_text())
    (pages / "index.md").write_text("# Start\n")
    (pages / "other.md").write_text("# Other\n\nInducing points grow.\n")
    config = tmp_path / "mkdocs.yml"
    config.write_text(CONFIG.format(pages=pages, site=tmp_path / "site"))
    build = [sys.executable, "-m", "mkdocs", "build", "--quiet", "-f", str(config)]
    subprocess.run(build, check=True, timeout=120, capture_output=True)
    options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=8000"]
    options += [f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom"]
    page = (tmp_path / "site" / "index.html").as_uri() + "?q=inducing"
    done = subprocess.run(
        [str(CHROMIUM), *options, page], check=True, timeout=120, capture_output=True, text=True
    )
    assert "1 matching document" in done.stdout
