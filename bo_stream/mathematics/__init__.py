"""The mathematics: states, updates, posteriors and objectives as functions of tensors."""
