"""Parts of any program: command line, signals, folders, provenance."""
