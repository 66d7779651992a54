"""Seconds of each part of a step against the number of points seen."""
