"""`python -m gateway` is `interlingua`."""

from gateway.cli import main

if __name__ == "__main__":
    main()
