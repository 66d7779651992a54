"""Trials, the events that a store records about them, and the frames that users give."""
