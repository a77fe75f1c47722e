"""Memory cores: recurrent cells that can be taken into any JAX project."""
