"""DPGAN: a generator taught by a private critic."""
