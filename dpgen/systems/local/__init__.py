"""Local samplers on a finite domain: one private draw from each user's distribution over n categories."""
