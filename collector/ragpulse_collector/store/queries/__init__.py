"""Named relations and writes: what a question about the stored data means is defined here once."""
