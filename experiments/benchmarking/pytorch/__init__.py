"""Measures the same computations in PyTorch."""
