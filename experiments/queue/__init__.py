"""All runs that are left, in one queue: for a GPU that is lent for a short time."""
