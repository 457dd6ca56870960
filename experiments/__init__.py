"""What was run for real, and how to run it again. Run the modules from the repository root; README.md has the commands."""
