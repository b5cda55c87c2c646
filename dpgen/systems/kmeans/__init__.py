"""DP k-means."""
