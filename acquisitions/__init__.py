"""Acquisition functions and builders for streaming surrogates."""
