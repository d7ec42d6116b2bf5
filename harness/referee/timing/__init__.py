"""Timing: rounds of bursts, checks of claimed times, calibration, speedup."""
