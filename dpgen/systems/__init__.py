"""Generative systems: each with a plan of what it may spend, a configuration, and a fit that returns a release."""
