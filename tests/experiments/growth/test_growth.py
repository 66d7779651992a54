"""The study of how online SGPR grows."""

from bo_stream.growth import VIPS
from experiments.growth.scenarios import grown, stream

HELD = {"kernel": "additive", "lengthscale": 0.7, "outputscale": 0.6, "noise": 0.2}


def sizes(scenario: str) -> tuple[list[int], list[int]]:
    data = stream(scenario, 1, 50, 12, 0.2, 0)
    return grown(data, VIPS(0.035), HELD)[0], data.surprises


def test_a_growing_domain_takes_points_in_proportion() -> None:
    M, _ = sizes("growing")
    half = M[5] - M[0]
    assert half >= 4 and abs((M[11] - M[5]) - half) <= 3


def test_a_stationary_stream_stops_growing() -> None:
    M, _ = sizes("stationary")
    assert len(set(M[2:])) == 1


def test_only_surprises_make_the_model_grow() -> None:
    M, surprises = sizes("outliers")
    grows = [i for i in range(3, 12) if M[i] > M[i - 1]]
    assert grows == surprises[1:]


def test_an_additive_kernel_needs_fewer_points_than_a_product() -> None:
    data = stream("growing", 3, 100, 8, 0.2, 0)
    M = {k: grown(data, VIPS(0.035), HELD | {"kernel": k})[0][-1] for k in ("additive", "product")}
    assert M["additive"] < 0.7 * M["product"], M
