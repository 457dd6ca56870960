"""The objectives, forward + backward, on the CPU in one process: how much faster than the textbook, and at what memory.

Run:    .venv/bin/python benchmarks/objectives.py --json benchmarks/results/objectives-cpu.json
On:     2 cores, float32, random unit features and labels, the batch shapes of the paper's data sets
Result: benchmarks/README.md
"""

from vmcr2.bench.objectives import main

if __name__ == "__main__":
    main()
