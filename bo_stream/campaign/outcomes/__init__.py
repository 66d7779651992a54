"""What is measured: one outcome, counts, several with objectives and constraints."""
