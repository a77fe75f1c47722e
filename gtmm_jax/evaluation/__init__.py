"""Metrics, and what is measured on held-out episodes."""
