"""The command line.

Commands import the other modules when they run, so that help appears at once.
"""
