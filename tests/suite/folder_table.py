"""A page with the shares of passed cases by folder, from results of a framework's own tests."""

import collections

import results


def folder_of(result):
    return result["file"].rpartition("/")[0] or "."


def rows(pairs):
    """Of each folder: its cases that pass on the CPU device, and on both."""
    counts = collections.defaultdict(lambda: [0, 0, 0])
    for here, cpu in pairs:
        wanted = len(results.wanted(here, cpu))
        for i, more in enumerate((1, wanted, wanted - len(results.failures(here, cpu)))):
            counts[folder_of(here)][i] += more
    return dict(sorted(counts.items()))


def failed_rows(pairs, expected):
    for here, cpu in pairs:
        for case, error in sorted(results.failures(here, cpu).items()):
            reason = expected.get(case) or results.kind_of(error)
            yield f"| {case} | {reason.replace('|', ' ')} |"


def write_page(page, head, pairs, expected, files):
    """The page for (result of Headrace, result of the CPU device) of files."""
    found = rows(pairs)
    count, passed = (sum(row[i] for row in found.values()) for i in (1, 2))
    share = passed / max(count, 1)
    lines = [f"{passed:,} of {count:,} cases pass: {share:.2%}. {len(pairs)} of {files} files have been compared.", ""]
    lines += ["| folder | files | CPU device | HEADRACE | share |", "|---|---:|---:|---:|---:|"]
    for folder, (files, wanted, both) in found.items():
        lines.append(f"| {folder} | {files} | {wanted} | {both} | {both / wanted if wanted else 1:.1%} |")
    failed = list(failed_rows(pairs, expected))
    if failed:
        lines += ["", "Cases that fail, with the reason or the error's first line:", ""]
        lines += ["| case | reason |", "|---|---|"]
    page.write_text(head + "\n".join([*lines, *failed]) + "\n")
    print(f"wrote {page}")
