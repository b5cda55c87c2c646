"""Private clusterings: who belongs to which component."""
