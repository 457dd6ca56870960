"""The ledger: the paper's tables for MNIST and CIFAR-100 as rows, runs, tables and figures."""
