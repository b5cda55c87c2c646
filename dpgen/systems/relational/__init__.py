"""People and their rows: two linked tables, or histories alone, with the person as the unit."""
