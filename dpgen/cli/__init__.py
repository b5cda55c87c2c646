"""The commands: options, runs, selections, comparisons, dry runs."""
