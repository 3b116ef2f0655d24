"""`python -m penstock`, for environments in which the `penstock` script is not on the path."""

from penstock.cli import main

if __name__ == "__main__":
    main()
