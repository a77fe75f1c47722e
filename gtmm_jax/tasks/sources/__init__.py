"""Where images and episodes come from."""
