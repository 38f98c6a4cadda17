"""From the command line to runs: help, sweeps, frozen code, Slurm."""
