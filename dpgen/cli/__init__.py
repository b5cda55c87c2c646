"""The commands: options, jobs, sweeps, comparisons, dry runs."""
