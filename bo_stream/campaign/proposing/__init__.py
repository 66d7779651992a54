"""Choosing trials: surrogates, acquisition functions, their defaults and schedules."""
