"""The temporal VAE: maps, one step, free energy, generation."""
