"""The download path against a server on the loopback interface: good, wrong and broken answers."""

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

import numpy as np
import pytest

from problems import load_malaria
from problems.errors import DownloadFailed

pytest.importorskip("pooch", reason="the extra data is not installed")
rasterio = pytest.importorskip("rasterio", reason="the extra geo is not installed")


@pytest.fixture(scope="module")
def tiff(tmp_path_factory):
    """Bytes of a 4-band raster over a part of Benin."""
    path = tmp_path_factory.mktemp("raster") / "x.tif"
    value = np.random.default_rng(0).uniform(0.1, 0.4, (60, 60)).astype("float32")
    transform = rasterio.transform.from_origin(1.0, 10.0, 1 / 24, 1 / 24)
    profile = {"driver": "GTiff", "count": 4, "height": 60, "width": 60, "dtype": "float32"}
    with rasterio.open(
        path, "w", crs="EPSG:4326", nodata=-9999.0, transform=transform, **profile
    ) as f:
        f.write(np.stack([value, np.ones_like(value), 0.5 * value, 1.5 * value]))
    return path.read_bytes()


class Server:
    """Serves one answer (status, declared length, body) and counts the requests."""

    def __init__(self):
        self.answer, self.requests = (200, None, b""), []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                outer.requests.append(self.path)
                status, length, body = outer.answer
                self.send_response(status)
                if length is not None:
                    self.send_header("Content-Length", str(length))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *args):
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}/geoserver/Malaria/ows"
        threading.Thread(target=self.http.serve_forever, daemon=True).start()


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    server = Server()
    yield server
    server.http.shutdown()
    server.http.server_close()


@pytest.fixture
def ask(server, tmp_path):
    def ask(**changes):
        arguments = {"country": "BEN", "year": 2017, "download": True, "quantity": "pfpr"}
        arguments |= {"url": server.url, "cache_dir": tmp_path / "cache"}
        return load_malaria(**(arguments | changes))

    return ask


def test_a_good_answer_is_loaded_cached_and_attributed(server, ask, tiff, tmp_path, capsys, caplog):
    server.answer = (200, len(tiff), tiff)
    caplog.set_level("INFO", logger="problems")
    data = ask()
    assert data.Y.shape == (3600, 1) and data.derived_std and data.year == 2017
    assert "PfPR" in data.units and not data.synthetic
    assert "CC BY" in caplog.text and "Malaria Atlas Project" in caplog.text
    assert "CC BY" in data.attribution and capsys.readouterr().out == ""  # a library is silent
    server.answer = (500, 0, b"")
    again = ask()  # from the cache
    assert len(server.requests) == 1 and (again.Y == data.Y).all()
    assert sorted(p.suffix for p in (tmp_path / "cache").iterdir()) == [".sha256", ".tiff"]


def test_the_request_is_wcs_get_coverage_of_the_box(server, ask, tiff):
    server.answer = (200, len(tiff), tiff)
    ask(release="202406")
    query = parse_qs(urlsplit(server.requests[0]).query)
    assert query["service"] == ["WCS"] and query["request"] == ["GetCoverage"]
    assert query["coverageId"] == ["Malaria__202406_Global_Pf_Parasite_Rate"]
    assert query["subset"] == ["Long(0.7,3.9)", "Lat(6.1,12.5)", 'time("2017-01-01T00:00:00.000Z")']


@pytest.mark.parametrize("kind", ["html", "empty", "http error", "short", "cut", "header only"])
def test_an_answer_that_is_no_whole_raster_is_refused_and_not_kept(
    server, ask, tiff, tmp_path, kind
):
    html = b"<html><body>ServiceException: no such coverage</body></html>"
    server.answer = {
        "html": (200, len(html), html),
        "empty": (200, 0, b""),
        "http error": (404, len(html), html),
        "short": (200, len(tiff), tiff[:20_000]),  # the connection ends before the promised length
        "cut": (200, None, tiff[:20_000]),  # no length promised: only reading it shows the loss
        "header only": (200, None, tiff[:8]),
    }[kind]
    with pytest.raises(DownloadFailed, match="by hand") as error:
        ask()
    assert isinstance(error.value, ConnectionError)
    if kind == "html":
        assert "ServiceException" in str(error.value)
    assert [p for p in (tmp_path / "cache").rglob("*") if p.is_file()] == []
    server.answer = (200, len(tiff), tiff)
    assert ask().Y.shape == (3600, 1)


def test_no_server_at_all(tmp_path, ask):
    with pytest.raises(DownloadFailed, match="by hand"):
        ask(url="http://127.0.0.1:1/ows")


def test_a_changed_cache_is_refused_and_one_without_a_checksum_is_fetched_again(
    server, ask, tiff, tmp_path
):
    server.answer = (200, len(tiff), tiff)
    ask()
    (path,) = (tmp_path / "cache").glob("*.tiff")
    path.write_bytes(tiff[:-1] + b"!")
    with pytest.raises(DownloadFailed, match="SHA-256"):
        ask()
    path.with_suffix(".sha256").unlink()
    ask()
    assert len(server.requests) == 2 and path.read_bytes() == tiff


def test_nothing_is_downloaded_without_being_asked(server, ask):
    with pytest.raises(ValueError, match="download=True"):
        ask(download=False)
    assert server.requests == []
