"""The command `firn-lab`: one file a command."""
