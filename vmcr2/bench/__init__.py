"""What `vmcr2 bench` runs. Every claim about speed or memory comes from here, as ratios within one process."""
