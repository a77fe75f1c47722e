"""One run, in the order of its life; programs import it, never the reverse."""
