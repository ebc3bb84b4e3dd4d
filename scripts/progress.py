#!/usr/bin/env python3
"""Runs a command whose output is rare or long, and shows one line of progress instead.

    scripts/progress.py "compiling into build/python" cmake --build build/python

The line has the last status of ninja or pip and the seconds so far. It is redrawn in a terminal, and elsewhere printed
again every ten seconds. If the command fails, its output follows. The exit status is the command's.
"""

import re
import subprocess
import sys
import threading
import time

PATTERNS = [
    (re.compile(r"^\s*\[(\d+)/(\d+)\]"), r"\1 of \2"),  # ninja
    (re.compile(r"^\s*Collecting (\S+)"), r"looks up \1"),  # pip
    (re.compile(r"^\s*Downloading (?:\S*/)?([^\s/]+)(?: (\(.*\)))?"), r"downloads \1 \2"),
    (re.compile(r"^\s*Installing collected packages"), "unpacks the packages"),
]
SECONDS = 10  # between two lines where there is no terminal


def status_of(line: str) -> str | None:
    """The status text for a line of the command's output, or None."""
    for pattern, text in PATTERNS:
        if found := pattern.match(line):
            return found.expand(text).strip()
    return None


class Line:
    """The line of progress, drawn by a thread until `finish`."""

    def __init__(self, title: str, stream=sys.stdout):
        self.title, self.stream, self.status = title, stream, ""
        self.begin = time.monotonic()
        self.is_over = threading.Event()
        self.thread = threading.Thread(target=self.draw, daemon=True)
        self.thread.start()

    def text(self) -> str:
        status = f": {self.status}" if self.status else ""
        return f"{self.title}{status}, {time.monotonic() - self.begin:.0f} s"

    def draw(self) -> None:
        is_terminal = self.stream.isatty()
        while True:
            self.stream.write(f"\r{self.text()}\x1b[K" if is_terminal else f"{self.text()}\n")
            self.stream.flush()
            if self.is_over.wait(0.5 if is_terminal else SECONDS):
                break

    def finish(self, how: str) -> None:
        self.is_over.set()
        self.thread.join()
        self.status = how
        print(f"\r{self.text()}\x1b[K" if self.stream.isatty() else self.text(), file=self.stream, flush=True)


def main() -> int:
    if len(sys.argv) < 3:
        print(__doc__, file=sys.stderr)
        return 2
    line, output = Line(sys.argv[1]), []
    pipe = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, "errors": "replace"}
    with subprocess.Popen(sys.argv[2:], **pipe) as run:
        for text in run.stdout:
            output.append(text)
            line.status = status_of(text) or line.status
    line.finish("done" if run.returncode == 0 else "failed")
    if run.returncode != 0:
        sys.stderr.write("".join(output))
    return run.returncode if run.returncode >= 0 else 128 - run.returncode


if __name__ == "__main__":
    sys.exit(main())
