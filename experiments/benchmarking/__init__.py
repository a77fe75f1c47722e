"""Measures steps and cores: the parts of benchmark.py."""
