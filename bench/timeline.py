#!/usr/bin/env python3
"""Draws the last program of a timeline (HEADRACE_TRACE=file.json, or torch.headrace.profiler.export) as an SVG: time
runs to the right, each track is a row, and lines lead from a commit to its kernels. A box shows its name, time and
arguments on hover.

    HEADRACE_TRACE=step.json python program.py
    python bench/timeline.py step.json step.svg
"""

import argparse
import html
import json
from pathlib import Path

WIDTH, LEFT, ROW, GAP, FONT = 1000, 110, 22, 14, 11  # pixels
COLOURS = {"commit": "#7aa6d8", "kernel": "#f2b46b", "library": "#e58f7b", "run": "#cfd8dc", "copy": "#9ccc9c"}
SHOWN = ("shapes", "tier", "GB/s", "% of bandwidth", "operation names", "operations")


def events_of(trace: dict, runs: int) -> list[dict]:
    """The complete events of the last programs, from the commit of the first of them."""
    events = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    commits = sorted((e for e in events if e.get("cat") == "commit"), key=lambda event: event["ts"])
    begin = commits[-min(runs, len(commits))]["ts"] if commits else 0
    return [event for event in events if event["ts"] >= begin]


def title(event: dict) -> str:
    lines = [f"{event['name']}: {event['dur']:.1f} us"]
    for key in SHOWN:
        if key in event.get("args", {}):
            value = event["args"][key]
            lines.append(f"{key}: {', '.join(value) if isinstance(value, list) else value}"[:240])
    return html.escape("\n".join(lines))


def box(event: dict, y: float, begin: float, scale: float) -> str:
    x, width = LEFT + (event["ts"] - begin) * scale, max(event["dur"] * scale, 0.6)
    is_library = event.get("cat") == "kernel" and event.get("args", {}).get("tier") == "library"
    colour = COLOURS.get("library" if is_library else event.get("cat"), "#dddddd")
    label = html.escape(event["name"][: int(width / (FONT * 0.6))]) if width > 5 * FONT else ""
    return (
        f'<g><title>{title(event)}</title><rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="{ROW - 4}" '
        f'fill="{colour}"/>' + (f'<text x="{x + 2:.1f}" y="{y + 13}">{label}</text>' if label else "") + "</g>"
    )


def rows_of(trace: dict, events: list[dict]) -> dict[int, tuple[str, int]]:
    """For each track with events: its name and the top of its row, in the viewer's order."""
    names = {e["tid"]: e["args"]["name"] for e in trace["traceEvents"] if e["name"] == "thread_name"}
    used = sorted({event["tid"] for event in events})
    return {track: (names.get(track, str(track)), 24 + i * (ROW + GAP)) for i, track in enumerate(used)}


def arrows(events: list[dict], rows: dict, begin: float, scale: float) -> list[str]:
    commits = {e["args"].get("run"): e for e in events if e.get("cat") == "commit"}
    out = []
    for event in events:
        commit = commits.get(event.get("args", {}).get("run"))
        if event.get("cat") == "kernel" and commit is not None:
            x1, x2 = (LEFT + (e["ts"] - begin) * scale for e in (commit, event))
            y1, y2 = rows[commit["tid"]][1] + ROW - 4, rows[event["tid"]][1]
            out.append(f'<path d="M{x1:.1f} {y1}L{x2:.1f} {y2}" stroke="#999" stroke-width="0.4" fill="none"/>')
    return out


def picture(trace: dict, runs: int = 1) -> str:
    events = events_of(trace, runs)
    if not events:
        raise ValueError("the timeline has no event: did the program run an operation?")
    begin = min(event["ts"] for event in events)
    span = max(event["ts"] + event["dur"] for event in events) - begin
    scale, rows = (WIDTH - LEFT - 10) / max(span, 1e-3), rows_of(trace, events)
    height = 24 + len(rows) * (ROW + GAP)
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="monospace" '
        f'font-size="{FONT}">',
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
        f'<text x="{LEFT}" y="14">{span:.0f} us; blue: commit, red: library, orange: kernel, green: copy</text>',
        *(f'<text x="4" y="{y + 13}">{html.escape(name)}</text>' for name, y in rows.values()),
        *arrows(events, rows, begin, scale),
        *(box(event, rows[event["tid"]][1], begin, scale) for event in sorted(events, key=lambda e: -e["dur"])),
    ]
    return "\n".join([*out, "</svg>"]) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace", type=Path, help="a timeline in JSON")
    parser.add_argument("svg", type=Path, help="the picture")
    parser.add_argument("--runs", type=int, default=1, help="last programs that are drawn (default %(default)s)")
    arguments = parser.parse_args()
    trace = json.loads(arguments.trace.read_text(encoding="utf-8"))
    arguments.svg.write_text(picture(trace, arguments.runs), encoding="utf-8")


if __name__ == "__main__":
    main()
