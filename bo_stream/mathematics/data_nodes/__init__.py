"""Nodes that are data points (MATHS 2.8): state, choice, evidence and posterior."""
