"""From the command line to runs: help, choices, sweeps, frozen code, Slurm."""
