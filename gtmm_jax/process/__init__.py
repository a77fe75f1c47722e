"""What any program needs: command line, signals, folders, provenance."""
