"""Columns of tables: forms and writings of values, fields and constraints, axes and densities of numbers."""
