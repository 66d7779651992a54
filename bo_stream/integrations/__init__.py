"""Streaming surrogates inside other frameworks, one file each; nothing here is imported by itself.

- `bo_stream.integrations.optuna`: a sampler for Optuna (extra ``optuna``);
- `bo_stream.integrations.ax`: a generation node for Ax (extra ``ax``).
"""
