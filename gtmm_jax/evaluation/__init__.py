"""Metrics, and evaluation on held-out episodes."""
