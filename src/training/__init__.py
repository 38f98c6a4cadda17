"""One experiment, from config to folder."""
