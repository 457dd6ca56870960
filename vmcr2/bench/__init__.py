"""What `vmcr2 bench` runs: every claim of speed or memory comes out of here, as ratios within one process."""
