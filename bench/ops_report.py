"""The page of operators' speed: medians, then one line for each operator, the slowest first."""

import collections
import fnmatch
import json
import statistics
from pathlib import Path

import report

REASONS = Path(__file__).resolve().parent / "ops_reasons.txt"
SLOW = 0.7  # below this a row wants a reason


def reasons() -> list[tuple[str, str, str]]:
    """(pattern of the name, pattern of `size dtype layout direction`, reason) of ops_reasons.txt."""
    found = []
    for line in REASONS.read_text(encoding="utf-8").splitlines():
        if line.strip() and not line.startswith("#"):
            name, key, reason = (part.strip() for part in line.split("|", 2))
            found.append((name, key, reason))
    return found


def reason_for(row: dict, table: list[tuple[str, str, str]]) -> str:
    for name, key, reason in table:
        if fnmatch.fnmatchcase(row["name"], name) and fnmatch.fnmatchcase(row["key"], key):
            return reason
    return ""


def timed(rows: list[dict]) -> list[dict]:
    return [row for row in rows if row["outcome"] == "timed"]


def medians(rows: list[dict]) -> list[list[str]]:
    """A line for each size, dtype, layout and direction."""
    groups = collections.defaultdict(list)
    for row in timed(rows):
        groups[row["key"]].append(row["ratio"])
    lines = []
    for key, ratios in groups.items():
        ratios.sort()
        slow = sum(ratio < SLOW for ratio in ratios)
        tenth = ratios[len(ratios) // 10]
        line = [
            key,
            str(len(ratios)),
            f"{statistics.median(ratios):.2f}x",
            f"{tenth:.2f}x",
            f"{ratios[0]:.2f}x",
            str(slow),
        ]
        lines.append(line)
    return sorted(lines)


HEAD = ["what", "operators", "median", "a tenth is below", "worst", f"below {SLOW}x"]


def summary(rows: list[dict]) -> list[str]:
    return report.table(HEAD, medians(rows))


def as_json(written: dict) -> str:
    """One row per line, without rows that are untimed for a reason listed once on the page."""
    head = {key: value for key, value in written.items() if key != "rows"}
    rows = ",\n".join(json.dumps(row, separators=(",", ":")) for row in written["rows"])
    return json.dumps(head, indent=1)[:-2] + ',\n "rows": [\n' + rows + "\n]}\n"


def slow_table(rows: list[dict]) -> list[str]:
    table, lines = reasons(), []
    for row in sorted(timed(rows), key=lambda row: row["ratio"]):
        if row["ratio"] < SLOW:
            times = [report.time_text(row[side] / 1e6) for side in ("torch_us", "headrace_us")]
            lines.append([f"`{row['name']}`", row["key"], *times, f"{row['ratio']:.2f}x", reason_for(row, table)])
    return report.table(["operator", "what", "torch cpu", "headrace", "ratio", "reason"], lines)


def all_table(rows: list[dict]) -> list[str]:
    """One line an operator: its ratio in each column, the one with the smallest first."""
    by_name, keys = collections.defaultdict(dict), []
    for row in timed(rows):
        by_name[row["name"]][row["key"]] = row["ratio"]
        if row["key"] not in keys:
            keys.append(row["key"])
    lines = []
    for name, found in sorted(by_name.items(), key=lambda item: min(item[1].values())):
        lines.append([f"`{name}`", *(f"{found[key]:.2f}" if key in found else "" for key in sorted(keys))])
    return report.table(["operator", *sorted(keys)], lines)


def not_timed(rows: list[dict]) -> list[str]:
    """Names by reason of operators without any timing, and the failures."""
    has_times = {row["name"] for row in timed(rows)}
    by_reason = collections.defaultdict(set)
    for row in rows:
        if row["outcome"] != "timed" and (row["name"] not in has_times or row["outcome"] != "none"):
            by_reason[f"{row['outcome']}: {row['reason']}" if row["outcome"] != "none" else row["reason"]].add(
                row["name"]
            )
    return [
        f"- {reason}: {', '.join(f'`{name}`' for name in sorted(names))}" for reason, names in sorted(by_reason.items())
    ]


def document(written: dict) -> str:
    rows = written["rows"]
    lines = [
        "# Speed of each operator",
        "",
        f"Written by `make bench-ops` ({written['commit']}). "
        f"{report.machine_text(written['machine'], written['threads'])}.",
        "",
        "Every operator in torch's test data that has a size, one call at a time. Nothing here is fused with its "
        "neighbours, so the "
        "main advantage of the device is missing. The ratio is torch's time divided by Headrace's, medians of both in "
        "turn. `1K` "
        "is the cost of a call from Python; `backward` is a forward and a backward pass; `strided` has its first input "
        "transposed, or every second element of a line.",
        "",
        "## Medians",
        "",
        *summary(rows),
        "",
        f"## Below {SLOW}x",
        "",
        *slow_table(rows),
        "",
        "## All",
        "",
        *all_table(rows),
        "",
        "## Not timed",
        "",
        *not_timed(rows),
    ]
    return "\n".join(lines) + "\n"
