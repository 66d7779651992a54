"""What saved campaigns of `experiments.active_learning` say."""
