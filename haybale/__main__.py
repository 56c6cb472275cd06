"""Run the command line where the script ``haybale`` is not on the path: ``python -m haybale``."""

from haybale.cli import main

if __name__ == "__main__":
    main()
