"""What was run for real, and how to run it again, from the repository root. README.md has the commands."""
