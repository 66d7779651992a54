"""Methods by name."""

from experiments.comparison.methods.method import Method

ALL = frozenset({"mixed", "constrained", "objectives"})

METHODS: dict[str, Method] = {
    "campaign": Method("campaign.solve", (), ALL),
    "cma": Method("cma_es.solve", ("cma",)),
    "optuna_gp": Method("optuna_samplers.gp", ("optuna", "greenlet"), ALL),
    "optuna_tpe": Method("optuna_samplers.tpe", ("optuna",), ALL),
    "botorch": Method("botorch_gp.solve"),
    "botorch_outcomes": Method(
        "botorch_outcomes.solve", (), frozenset({"constrained", "objectives"})
    ),
    "turbo": Method("turbo.solve"),
    "sobol": Method("sobol.sobol", (), ALL),
    "random": Method("sobol.random", (), ALL),
}
