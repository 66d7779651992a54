"""How a model grows under several policies, at equal error."""
