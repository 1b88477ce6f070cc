"""Text in, encoded arrays and batches out: reading, cleaning, subwords, memory-mapped arrays."""
