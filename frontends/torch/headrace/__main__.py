"""`python -m headrace ...`: the command `headrace` that was installed with this package."""

import importlib.metadata
import os
import sys


def find_command():
    files = importlib.metadata.files("headrace") or ()
    return next((str(file.locate()) for file in files if file.parts[-2:] == ("bin", "headrace")), None)


if __name__ == "__main__":
    command = find_command()
    if command is None or not os.path.exists(command):
        sys.exit(f"headrace: the command is not installed{f' at {command}' if command else ''}")
    os.execv(command, [command, *sys.argv[1:]])
