"""Methods by name."""

from experiments.comparison.methods.botorch_gp import solve as botorch
from experiments.comparison.methods.botorch_outcomes import solve as botorch_outcomes
from experiments.comparison.methods.campaign import solve as campaign
from experiments.comparison.methods.cma_es import solve as cma
from experiments.comparison.methods.method import Method
from experiments.comparison.methods.optuna_samplers import gp, tpe
from experiments.comparison.methods.sobol import random, sobol

METHODS: dict[str, Method] = {
    "campaign": Method(campaign, (), frozenset({"mixed", "constrained", "objectives"})),
    "cma": Method(cma, ("cma",)),
    "optuna_gp": Method(gp, ("optuna", "greenlet"), frozenset({"mixed"})),
    "optuna_tpe": Method(tpe, ("optuna",), frozenset({"mixed"})),
    "botorch": Method(botorch),
    "botorch_outcomes": Method(botorch_outcomes, (), frozenset({"constrained", "objectives"})),
    "sobol": Method(sobol, (), frozenset({"mixed", "constrained", "objectives"})),
    "random": Method(random, (), frozenset({"mixed", "constrained", "objectives"})),
}
