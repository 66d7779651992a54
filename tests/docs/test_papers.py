"""The pages on papers: their sentences have the numbers of the studies' files.

`test_comparison` makes their tables from these files.
"""

import pandas as pd
import pytest

from tests.docs.pages import WORDS, missing, stored

# -- VIPS and OIPS -------------------------------------------------------------------------------

SWEPT = stored("papers/vips_means.csv").set_index(["policy", "table"])
TOYS = stored("papers/vips_batches.csv").set_index(["scenario", "policy", "seed", "batch"])
RIVALS = stored("papers/oips_toys.csv").set_index(["stream", "policy"])
FIXED = [f"FixedSize, m {m}" for m in (10, 20, 30)]


def excess(policy: str, *tables: str) -> str:
    """The range over tables."""
    found = SWEPT.loc[policy, "excess_percent"]
    found = found[list(tables)] if tables else found
    return (
        f"{found.min():.1f} to {found.max():.1f} %" if len(found) > 1 else f"{found.item():.1f} %"
    )


def points(policy: str, *tables: str) -> str:
    found = SWEPT.loc[policy, "points"]
    found = found[list(tables)] if tables else found
    return f"{found.min():.0f} to {found.max():.0f}" if len(found) > 1 else f"{found.item():.0f}"


def toy(what: str, stream: str, policy: str, seed: int, batch: int) -> float:
    return float(TOYS.loc[(stream, policy, seed, batch - 1), what])


def beyond(stream: str, policy: str) -> str:
    return f"{RIVALS.loc[(stream, policy), 'error']:.3f}".lstrip("0")


FULL = "a GP on all rows at once"
VIPS, OIPS = "VIPS, delta 0.05", "OIPS, rho 0.9"
WORST = SWEPT["excess_percent"].groupby("policy", sort=False).max().drop(FULL)
KIN = SWEPT.xs("kin8nm", level="table").filter(like="VIPS, delta", axis=0)
BELOW = [name.removeprefix("VIPS, delta ") for name in WORST.index[WORST < 7.0]]
SPLITS = stored("papers/vips_splits.csv").set_index(["table", "policy", "split"]).sort_index()
FINE = SPLITS["excess_percent"]["bike", "VIPS, delta 0.02"]
FOUR = "four stages"
VIPS_PAGE = [
    f"VIPS(.05) ends with {points(VIPS)} points and {excess(VIPS)} of excess error, OIPS(.9) with "
    f"{points(OIPS)} and {excess(OIPS)}, conditional variance to 10 with "
    f"{points('ConditionalVariance, eta 10.0')} and {excess('ConditionalVariance, eta 10.0')}, and "
    f"200 points have {excess('FixedSize, m 200')}.",
    f"Only VIPS with `delta` {', '.join(BELOW[:-1])} and {BELOW[-1]} stays below 7 % on all five "
    "tables",
    f"On Elevators VIPS(.4) has {points('VIPS, delta 0.4', 'elevators')} points at "
    f"{excess('VIPS, delta 0.4', 'elevators')}, where 50 fixed points have "
    f"{excess('FixedSize, m 50', 'elevators')} and conditional variance to 10 with "
    f"{points('ConditionalVariance, eta 10.0', 'elevators')} points "
    f"{excess('ConditionalVariance, eta 10.0', 'elevators')}.",
    f"On Kin8nm every `delta` ends at the limit of {KIN['points'].min():.0f} points, from "
    f"{KIN['excess_percent'].min():.1f} to {KIN['excess_percent'].max():.1f} % above the GP on all "
    "rows",
    f"`OIPS(.9)` on Bike has {points(OIPS, 'bike')} points at {excess(OIPS, 'bike')}, `OIPS(.8)` "
    f"{points('OIPS, rho 0.8', 'bike')} at {excess('OIPS, rho 0.8', 'bike')}:",
    f"`VIPS(.02)` it is the same on the second split, {FINE[1]:.1f} % where the first has "
    f"{FINE[0]:.1f} %.",
    f"`delta` .4 still leaves {points('VIPS, delta 0.4', 'concrete')} points on Concrete, and on "
    f"Skillcraft 50 fixed points have {excess('FixedSize, m 50', 'skillcraft')} of excess error, "
    f"VIPS(.05) with {points(VIPS, 'skillcraft')} points {excess(VIPS, 'skillcraft')}.",
    f"Seed 0 has {toy('points', 'uniform domain', 'VIPS', 0, 4):.0f} points for its first 60 rows, "
    f"and {toy('points', 'uniform domain', 'VIPS', 0, 5):.0f} after the next batch.",
    f"With 20 points ours ends at {toy('rmse', FOUR, FIXED[1], 42, 4):.2f} where the paper has .3",
    f"In the end VIPS is at {toy('rmse', FOUR, 'VIPS', 42, 4):.2f} and an exact GP at "
    f"{toy('rmse', FOUR, 'exact GP', 42, 4):.2f}.",
    f"Their negative log densities are {toy('nlpd', FOUR, 'VIPS', 42, 4):.2f} and "
    f"{toy('nlpd', FOUR, 'exact GP', 42, 4):.2f} nats (the paper: 1.0 and .9).",
    f"from {toy('points', 'magnetic path 1', 'VIPS', 0, 1):.0f} points to "
    f"{toy('points', 'magnetic path 1', 'VIPS', 0, 5):.0f}",
    f"error {beyond('uniform', 'OIPS')}, {beyond('time series', 'OIPS')} and "
    f"{beyond('uneven', 'OIPS')} on the three, a grid of as many points "
    f"{beyond('uniform', 'grid, times 1.0')}, {beyond('time series', 'grid, times 1.0')} and "
    f"{beyond('uneven', 'grid, times 1.0')}, k-means {beyond('uniform', 'k-means, times 1.0')}, "
    f"{beyond('time series', 'k-means, times 1.0')} and {beyond('uneven', 'k-means, times 1.0')}.",
]

# -- SVDGP ---------------------------------------------------------------------------------------

SINC = stored("papers/svdgp_sinc.csv").set_index(["method", "step"])
TORQUE = stored("papers/svdgp_torque.csv").set_index("contender")
OWN, STOCHASTIC = ("two bases, of ten and of all rows", 0), "decoupled, stochastic gradients"
SVDGP_PAGE = [
    f"where one basis of ten is {SINC['mean_error']['one basis of ten', 0]:.1f} deviations of the "
    "noise off.",
    f"Stochastic gradients are {SINC['mean_error'][STOCHASTIC, 300]:.2f} off after 300 steps and "
    f"{SINC['mean_error'][STOCHASTIC, 3000]:.2f} after 3,000, which take "
    f"{SINC['seconds'][STOCHASTIC, 3000]:.1f} seconds; the closed form takes "
    f"{SINC['seconds'][OWN]:.3f}.",
    f"the stochastic form, at the best of five rates, has a nMSE of "
    f"{TORQUE['nmse']['stochastic decoupled']:.2f} where SVI with 128 points has "
    f"{TORQUE['nmse']['SVI, 128 points']:.3f}:",
]


def test_a_mean_of_its_own_basis_is_the_exact_one() -> None:
    assert SINC["mean_error"][OWN] == 0.0
    exact = TORQUE["nmse"]["exact GP, same hyperparameters"]
    assert TORQUE["nmse"]["SVDGP"] == pytest.approx(exact, rel=1e-6)


# -- WISKI ---------------------------------------------------------------------------------------

DAYS = stored("papers/wiski_currencies.csv").set_index("method")
STREAMS = stored("papers/wiski_streams.csv").set_index(["table", "surrogate"])
RMSE, TOOK = STREAMS["RMSE"].unstack(), STREAMS["processor s"].unstack()
SKILL = STREAMS["NLPD"]["skillcraft"]

LABELS = stored("papers/wiski_labels.csv").set_index(["table", "surrogate", "order"])


def labelled(table: str, surrogate: str) -> str:
    """Accuracy and log loss, over all orders."""
    found = LABELS.xs((table, surrogate), level=("table", "surrogate"))
    return " and a log loss of ".join(
        " to ".join(dict.fromkeys(f"{v:.3f}" for v in (found[name].min(), found[name].max())))
        for name in ("accuracy", "log_loss")
    )


def spread(values: pd.Series, how: str) -> str:
    return f"{values.min():{how}} to {values.max():{how}}"


def over(method: str) -> str:
    return spread(RMSE[method] / RMSE["O-SVGP"], ".2f")


WISKI_PAGE = [
    f"With the mixture WISKI has an error of {DAYS['rmse']['WISKI, spectral mixture']:.2f} on the "
    f"days held out, the exact GP {DAYS['rmse']['exact GP, spectral mixture']:.2f}, O-SVGP "
    f"{DAYS['rmse']['O-SVGP, spectral mixture']:.2f}:",
    f"WISKI's NLPD is {DAYS['forecast_nlpd']['WISKI, spectral mixture']:.2f} with the mixture and "
    f"{DAYS['forecast_nlpd']['WISKI, squared exponential']:.2f} with the smooth kernel, at "
    f"errors of {DAYS['forecast_rmse']['WISKI, spectral mixture']:.2f} and "
    f"{DAYS['forecast_rmse']['WISKI, squared exponential']:.2f}.",
    f"has {over('WISKI, learned projection')} times the error of O-SVGP",
    f"nodes at data points have {over('WISKI, nodes at data')} times, the lowest on all three "
    f"tables, and take {spread(TOOK['WISKI, nodes at data'], '.1f')} seconds where O-SVGP takes "
    f"{spread(TOOK['O-SVGP'], '.0f')}.",
    f"an NLPD of {SKILL['local GPs']:.1f} nats where others have "
    f"{spread(SKILL.drop('local GPs'), '.1f')}.",
    f"On Banana WISKI has an accuracy of {labelled('banana', 'WISKI')}, the exact GP "
    f"{labelled('banana', 'exact GP')}.",
    f"On SVM guide HSGP has {labelled('svmguide1', 'HSGP')}, the exact GP "
    f"{labelled('svmguide1', 'exact GP')}.",
]


def test_nodes_at_data_are_ahead_everywhere() -> None:
    assert (RMSE.idxmin(axis=1) == "WISKI, nodes at data").all()


# -- CaGP ----------------------------------------------------------------------------------------

CURVES = stored("papers/cagp_curves.csv").set_index("method")
SPACES = stored("papers/cagp_subspaces.csv").set_index(["policy", "actions", "evaluations"])
LOSSES = stored("papers/cagp_losses.csv").set_index(["table", "learned by", "actions"])
COST = stored("papers/cagp_cost.csv").set_index(["i", "n"])
BOUND = COST["bound and gradient"]
KIN_LOSS = LOSSES.loc["kin8nm"]


def learning(column: str, *evaluations: int) -> list[str]:
    return [f"{SPACES[column]['BlockSparse', 16, n]:.1f}" for n in evaluations]


def milliseconds(values: pd.Series) -> list[str]:
    return [f"{value:.0f}" for value in values]


LEFT = (
    SPACES["bound"].xs("ConjugateGradient").droplevel("evaluations")
    - SPACES["bound"].xs("BlockSparse").xs(20, level="evaluations")
).max()
DISTANCE, RISE, NOISE = learning("distance", 0, 5, 20), learning("bound", 5, 20), KIN_LOSS["noise"]
BY_N, BY_I = milliseconds(BOUND[64]), milliseconds(BOUND.xs(8000, level="n"))
EXACT_EVIDENCE = KIN_LOSS.loc["CaGP-CG, exact evidence", 64]
BUDGET = stored("papers/cagp_budget.csv").set_index(["table", "surrogate"])
KIN, PLANT = BUDGET.loc["kin8nm"], BUDGET.loc["powerplant"]


def errors(*names: str) -> list[str]:
    return [f"{KIN['RMSE'][name]:.3f}" for name in names]


def by_budget(method: str, what: str) -> str:
    one, two, three = errors(*(f"{method}, {i} {what}" for i in (16, 64, 256)))
    return f"{one}, {two} and {three}"


FEW_CG, MORE_CG = errors("CaGP-CG, 16 actions", "CaGP-CG, 64 actions")
SEEDS = stored("papers/cagp_budget_seeds.csv").set_index(["table", "surrogate", "seed"])["rmse"]
BY_SEED = SEEDS.sort_index().loc["kin8nm", "CaGP-CG, 16 actions"]
FEW, MORE = "CGGP, 16 iterations", "CGGP, 64 iterations"
CAGP_PAGE = [
    f"its NLPD is {CURVES['nlpd']['CaGP-Opt']:.2f}, that of the exact GP "
    f"{CURVES['nlpd']['exact GP']:.2f}. CaGP-CG ({CURVES['nlpd']['CaGP-CG']:.2f})",
    f"SGPR's mean has an error of {CURVES['rmse']['SGPR']:.3f}, the exact one "
    f"{CURVES['rmse']['exact GP']:.3f},",
    f"{100 * CURVES['coverage']['CGGP']:.0f} % of the outcomes are in its intervals of 95 %.",
    f"from a distance of {DISTANCE[0]} to {DISTANCE[1]}, and 15 more away again to {DISTANCE[2]}, "
    f"while the bound still rises from {RISE[0]} to {RISE[1]} nats:",
    f"After 20 evaluations their bound is within {LEFT:.1f} nats of that of conjugate gradients",
    f"to its floor ({NOISE['CaGP-Opt, projected', 16]:.4f}) with blocks, and to "
    f"{NOISE['CaGP-CG, projected', 16]:.0f} or {NOISE['CaGP-CG, projected', 64]:.0f} times the "
    "variance of the outcomes with conjugate gradients",
    f"with 64 actions its error is the exact one's, {EXACT_EVIDENCE['rmse']:.3f}.",
    f"{100 * EXACT_EVIDENCE['coverage']:.0f} % of the outcomes are in those of 95 %.",
    f"with 64 actions from {BY_N[0]} ms to {BY_N[1]}, {BY_N[2]} and {BY_N[3]} as n doubles, and "
    f"little with i: {BY_I[0]}, {BY_I[1]} and {BY_I[2]} ms at 8,000 rows.",
    f"A posterior takes {COST['posterior at 100'].min():.0f} to "
    f"{COST['posterior at 100'].max():.0f} ms, and an observation about "
    f"{COST['observe 1'].median():.0f} whatever there is.",
    f"On Kin8nm, where that is {KIN['RMSE']['exact GP']:.3f}, CaGP-Opt has "
    f"{by_budget('CaGP-Opt', 'actions')} with 16, 64 and 256 actions, SGPR "
    f"{by_budget('SGPR', 'points')}, SVGP, whose points are learned, "
    f"{by_budget('SVGP', 'points')}:",
    f"CaGP-CG has {FEW_CG} with 16 actions ({spread(BY_SEED, '.3f')} by seed) and {MORE_CG} "
    "with 64, between CaGP-Opt and SVGP.",
    f"CGGP with 64 iterations has the exact GP's error, {KIN['RMSE'][MORE]:.3f}, in "
    f"{WORDS[round(KIN['processor s'][MORE] / KIN['processor s']['exact GP'])]} times its seconds.",
    f"With 16 it fails, at {KIN['RMSE'][FEW]:.3f}:",
    f"{100 * KIN['coverage'][FEW]:.0f} % of the outcomes are in intervals of 95 %. CaGP-CG, which "
    "has the same actions and counts what they leave, has "
    f"{100 * KIN['coverage']['CaGP-CG, 16 actions']:.0f} % of them there.",
]


def test_what_is_said_of_budgets_without_numbers() -> None:
    assert (PLANT["RMSE"] - PLANT["RMSE"]["exact GP"]).abs().max() < 0.01
    assert KIN["RMSE"][MORE] == pytest.approx(KIN["RMSE"]["exact GP"], rel=0.02)
    for i in (16, 64, 256):
        opt, sgpr, svgp = (
            KIN["RMSE"][f"{name}, {i} {what}"]
            for name, what in (("CaGP-Opt", "actions"), ("SGPR", "points"), ("SVGP", "points"))
        )
        assert opt == pytest.approx(sgpr, rel=0.05) and svgp < opt
    for i in (16, 64):
        between = [f"SVGP, {i} points", f"CaGP-CG, {i} actions", f"CaGP-Opt, {i} actions"]
        assert KIN["RMSE"][between].is_monotonic_increasing


def test_what_is_said_of_losses_without_numbers() -> None:
    errors = LOSSES["rmse"].unstack("learned by")
    errors = errors.drop(index=600, level="actions")
    assert (errors["CaGP-Opt, `fit`"] < errors["CaGP-Opt, bound"]).all()
    assert EXACT_EVIDENCE["rmse"] == pytest.approx(KIN_LOSS["rmse"]["exact GP", 600], abs=1e-6)


PAGES = {"vips": VIPS_PAGE, "svdgp": SVDGP_PAGE, "wiski": WISKI_PAGE, "cagp": CAGP_PAGE}


@pytest.mark.parametrize("page", PAGES)
def test_sentences_have_the_numbers_of_the_stored_tables(page: str) -> None:
    assert not missing(f"docs/papers/{page}.md", PAGES[page])


def test_tables_of_the_papers_toys_are_those_of_their_batches() -> None:
    means = TOYS["points"].groupby(["scenario", "batch"], sort=False).mean()
    shown = stored("papers/vips_figure1.csv").set_index("points after")
    for column in shown:
        batch = int(column.removeprefix("batch ")) - 1
        found = [round(means[stream, batch], 1) for stream in shown.index]
        assert shown[column].tolist() == found
    labels = {"VIPS(.05)": "VIPS", "exact GP": "exact GP"}
    labels |= {f"{name.split()[-1]} points": name for name in FIXED}
    second = stored("papers/vips_figure2.csv").set_index("points: error after")
    third = stored("papers/vips_magnetic.csv").set_index("points: error after")
    for name, policy in labels.items():
        for column, cell in second.loc[f"{name}, ours"].items():
            assert cell == _cell(FOUR, policy, 42, str(column), ".2f")
    for name, policy in (("VIPS(.095)", "VIPS"), ("OIPS(.93)", "OIPS")):
        for column, cell in third.loc[name].items():
            assert cell == _cell("magnetic path 1", policy, 0, str(column), ".1f")


def test_tables_of_policies_are_those_of_their_means() -> None:
    for name, column, how in (
        ("error", "excess_percent", "z.1f"),
        ("density", "excess_nats", "z.2f"),
    ):
        shown = stored(f"papers/vips_{name}.csv").set_index("policy").iloc[:-2]
        for (policy, table), row in SWEPT.iterrows():
            if policy in shown.index:
                assert shown.loc[policy, table] == f"{row['points']:.0f}: {row[column]:{how}}"


def _cell(stream: str, policy: str, seed: int, column: str, how: str) -> str:
    batch = int(column.removeprefix("batch "))
    size, error = (toy(what, stream, policy, seed, batch) for what in ("points", "rmse"))
    return f"{size:.0f}: {error:{how}}" if size == size else f"{error:{how}}"
