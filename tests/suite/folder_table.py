"""A page with the shares of passed cases by folder, from results of a framework's own tests.

A folder that has results of fewer files than the page keeps its row there: as many cases as then pass on the CPU
device, and the failures are those of expected_failures.txt. So results of some files suffice for a new page. With
--more the results are of files that the page lacks: they are added to its rows.
"""

import collections
import re

import results


def add_option(parser):
    parser.add_argument("--more", action="store_true", help="with --table and --write: adds files that the page lacks")


def folder_of(case):
    return case.partition("::")[0].rpartition("/")[0] or "."


def new_rows(pairs):
    """Of each folder: its files, its cases that pass on the CPU device, and how many of them fail on Headrace."""
    counts = collections.defaultdict(lambda: [0, 0, 0])
    for here, cpu in pairs:
        more = (1, len(results.wanted(here, cpu)), len(results.failures(here, cpu)))
        row = counts[folder_of(here["file"])]
        row[:] = [a + b for a, b in zip(row, more, strict=True)]
    return counts


def old_rows(page, expected):
    """The same of the page, with the failures that are expected."""
    failed = collections.Counter(map(folder_of, expected))
    text = page.read_text() if page.exists() else ""
    rows = re.findall(r"^\| (\S+) \| (\d+) \| (\d+) \| \d+ \|", text, re.MULTILINE)
    return {folder: [int(files), int(cases), failed[folder]] for folder, files, cases in rows}


def failed_rows(pairs, expected, kept):
    failed = {case: error for here, cpu in pairs for case, error in results.failures(here, cpu).items()}
    reasons = {case: expected.get(case) or results.kind_of(error) for case, error in failed.items()}
    reasons |= {case: reason for case, reason in expected.items() if folder_of(case) in kept}
    return [f"| {case} | {reason.replace('|', ' ')} |" for case, reason in sorted(reasons.items())]


def kept_rows(rows, old, is_more):
    """The old rows of folders that have fewer files in `rows`; with is_more all old ones, with the new files and cases."""
    if not is_more:
        return {folder: row for folder, row in old.items() if rows.get(folder, [0])[0] < row[0]}
    return {folder: [files + rows[folder][0], cases + rows[folder][1], bad] for folder, (files, cases, bad) in old.items()}


def write_page(page, head, pairs, expected, files, is_more=False):
    """The page for (result of Headrace, result of the CPU device) of files."""
    rows = new_rows(pairs)
    kept = kept_rows(rows, old_rows(page, expected), is_more)
    rows |= kept
    compared, count, failed = (sum(row[i] for row in rows.values()) for i in range(3))
    share = (count - failed) / max(count, 1)
    lines = [f"{count - failed:,} of {count:,} cases pass: {share:.2%}. {compared} of {files} files have been compared.", ""]
    lines += ["| folder | files | CPU device | HEADRACE | share |", "|---|---:|---:|---:|---:|"]
    for folder, (names, cases, bad) in sorted(rows.items()):
        lines.append(f"| {folder} | {names} | {cases} | {cases - bad} | {(cases - bad) / cases if cases else 1:.1%} |")
    listed = failed_rows([pair for pair in pairs if folder_of(pair[0]["file"]) not in kept], expected, kept)
    if listed:
        lines += ["", "Cases that fail, with the reason or the error's first line:", ""]
        lines += ["| case | reason |", "|---|---|"]
    page.write_text(head + "\n".join([*lines, *listed]) + "\n")
    print(f"wrote {page}")
