"""The paper's tables for MNIST and CIFAR-100 as runs: rows, the runs that fill them, tables and figures of the results."""
