"""Runs every cell of a grid: the parts of study.py."""
