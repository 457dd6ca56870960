"""``python -m vmcr2``."""

from .cli import main

if __name__ == "__main__":
    main()
