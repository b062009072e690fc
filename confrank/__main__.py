"""`python -m confrank` is the command line."""

from confrank.cli import main

if __name__ == "__main__":
    main()
