"""Who evaluates the trials of a run: this process, worker processes, an executor."""
