"""Evaluating the trials of a run: in this process, in local processes, in an executor."""
