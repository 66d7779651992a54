"""Where to survey next, and what surveys say, if outcomes are counts."""
