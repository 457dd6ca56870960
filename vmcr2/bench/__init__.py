"""What `benchmarks/` runs: every claim of speed or memory comes out of here, as ratios within one process."""
