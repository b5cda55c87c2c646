"""Estimators of distributions on an ordered domain [N], N up to 10^18."""
