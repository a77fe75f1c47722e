"""Reads recordings, and cuts them into episodes: parts of pack_frames.py."""
