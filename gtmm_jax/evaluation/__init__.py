"""Metrics, tighter bounds, and evaluation on held-out episodes."""
