"""Writes runs and studies as one page: the parts of report.py."""
