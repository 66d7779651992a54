"""What the studies share: commands, kernels, splits of tables, pictures, summaries."""
