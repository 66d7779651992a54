"""The command line.

Its modules import torch, pandas and plotting libraries only when a command needs them, so that help
and errors in a configuration appear at once.
"""
