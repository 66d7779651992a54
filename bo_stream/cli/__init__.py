"""The command line: what each command does, and the configuration they share.

Nothing here imports torch, pandas or a plotting library before a command needs it, so that help and
errors in a configuration come at once.
"""
