"""A trust region on a stream of evaluations, with a local Gaussian process [MATHS 14]."""
