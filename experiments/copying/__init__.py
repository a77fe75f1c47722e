"""Learns to copy sequences: the parts of copy_task.py."""
