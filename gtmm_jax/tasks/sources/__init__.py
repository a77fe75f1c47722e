"""Sources of images and episodes."""
