"""Every likelihood keeps the contract of likelihoods."""

from bo_stream.likelihoods import Bernoulli, Binomial, NegativeBinomial, Poisson, StudentT
from bo_stream.testing import LikelihoodContract


class TestBinomial(LikelihoodContract):
    likelihood = Binomial()
    outcomes = [0.0, 3.0, 20.0]
    sizes = [20.0, 20.0, 20.0]


class TestBernoulli(LikelihoodContract):
    likelihood = Bernoulli(nugget=0.0)
    outcomes = [0.0, 1.0]
    sizes = [1.0, 1.0]


class TestPoisson(LikelihoodContract):
    likelihood = Poisson()
    outcomes = [0.0, 4.0, 60.0]
    sizes = [0.5, 10.0, 10.0]


class TestNegativeBinomial(LikelihoodContract):
    likelihood = NegativeBinomial(shape=2.0, nugget=0.0)
    outcomes = [0.0, 4.0, 60.0]
    sizes = [0.5, 10.0, 10.0]


class TestStudentT(LikelihoodContract):
    likelihood = StudentT()
    outcomes = [-1.0, 0.4, 8.0]
    sizes = [0.01, 0.01, 0.01]
