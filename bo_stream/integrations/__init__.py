"""Streaming surrogates inside other frameworks. Import these modules explicitly:

- `bo_stream.integrations.optuna`: a sampler for Optuna (extra ``optuna``);
- `bo_stream.integrations.ax`: a generation node for Ax (extra ``ax``).
"""
