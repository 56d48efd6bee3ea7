"""Run the command line: ``python -m pairwright``, ``torchrun -m pairwright``."""

from pairwright.flows.cli import main

if __name__ == "__main__":
    main()
