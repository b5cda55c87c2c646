"""Mixed tables: adaptively measured marginals, and a mixture of products that agrees with them."""
