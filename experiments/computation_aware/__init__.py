"""What computation-aware GPs make of a budget of actions."""
