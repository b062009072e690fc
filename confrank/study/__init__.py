"""Studies: the runs behind each table, resumable, and our results next to the paper's."""
