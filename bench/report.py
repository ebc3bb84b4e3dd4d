"""Output of a run of the benchmark: the machine in words, tables."""

import math
import os
import platform
import statistics
import subprocess
from pathlib import Path

import torch

RATIOS = {  # of each side: torch's time by its
    "device": "ratio",
    "compiled": "compiled_ratio",
    "inductor": "inductor_ratio",
    "onnxruntime": "onnxruntime_ratio",
    "openvino": "openvino_ratio",
}
TITLES = {
    "torch": "torch cpu",
    "device": "headrace",
    "compiled": "compiled",
    "inductor": "torch.compile cpu",
    "onnxruntime": "ONNX Runtime",
    "openvino": "OpenVINO",
}


def machine() -> dict:
    """The relevant properties of this machine, without its name."""
    fields = {}
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            key, _, value = line.partition(":")
            fields.setdefault(key.strip(), value.strip())
    except OSError:
        pass
    flags = set(fields.get("flags", "").split())
    known = {
        "avx2": "AVX2",
        "avx512f": "AVX-512",
        "avx512_vnni": "VNNI",
        "avx512_bf16": "AVX-512 BF16",
        "amx_tile": "AMX",
    }
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cpu": fields.get("model name", platform.machine()),
        "model": f"family {fields['cpu family']} model {fields['model']}" if "cpu family" in fields else "",
        "cores": len(os.sched_getaffinity(0)),
        "vectors": [text for flag, text in known.items() if flag in flags],
        "cache": fields.get("cache size", ""),
        "memory_gib": round(memory / 2**30),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "torch": torch.__version__,
    }


def machine_text(described: dict, threads: int) -> str:
    vectors = f" with {', '.join(described['vectors'])}" if described["vectors"] else ""
    model = f" ({described['model']})" if described.get("model") else ""
    return (
        f"{described['cpu']}{model}, {described['cores']} cores{vectors}, {described['memory_gib']} GiB, "
        f"{described['system']}; torch {described['torch']}, Python {described['python']}; "
        f"{threads} threads on all sides"
    )


def commit_of_tree(root: Path) -> str:
    command = ["git", "-C", str(root), "describe", "--always", "--dirty"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def time_text(seconds: float) -> str:
    for factor, unit in ((1, "s"), (1e3, "ms"), (1e6, "us")):
        if seconds * factor >= 1:
            return f"{seconds * factor:.3g} {unit}" if seconds * factor < 1000 else f"{seconds * factor:.0f} {unit}"
    return f"{seconds * 1e9:.0f} ns"


def memory_text(side: dict) -> str:
    return f"{side['alone']['growth_bytes'] / 2**20:,.0f} MiB" if "alone" in side else ""


def geometric_mean(results: list[dict], key: str) -> float | None:
    ratios = [result[key] for result in results if result.get("counts_in_mean") and key in result]
    return math.exp(statistics.fmean(map(math.log, ratios))) if ratios else None


def reading_limit(result: dict) -> float:
    """Seconds that reading the weights takes at 85 % of a plain product's bandwidth, and 1.5 ms for the rest."""
    return result["row_product"]["median_seconds"] / 0.85 + 1.5e-3


# ---- while it runs


def progress(result: dict) -> str:
    text = f"{time_text(result['torch']['median_seconds']):>9}"
    for side, key in RATIOS.items():
        if side in result:
            text += f"   {TITLES[side]} {time_text(result[side]['median_seconds']):>8} {result[key]:5.2f}x"
    if "row_product" in result:
        text += f"   plain product {time_text(result['row_product']['median_seconds'])}"
    return text


def progress_alone(result: dict) -> str:
    parts = []
    for side in ("torch", "device"):
        if "alone" in result[side]:
            alone = result[side]["alone"]
            first, settled = time_text(alone["first_seconds"]), time_text(alone["settled_seconds"])
            parts.append(f"{TITLES[side]}: first {first}, full speed {settled}, {memory_text(result[side])}")
    return "\n        alone, " + "; ".join(parts) if parts else ""


# ---- tables


def table(head: list[str], rows: list[list[str]]) -> list[str]:
    lines = ["| " + " | ".join(head) + " |", "|---|" + "---:|" * (len(head) - 1)]
    return lines + ["| " + " | ".join(row) + " |" for row in rows]


def speed_table(results: list[dict], means: dict) -> list[str]:
    sides = [side for side in RATIOS if any(side in result for result in results)]
    head = ["case", TITLES["torch"]]
    for side in sides:
        head += [TITLES[side], "speed-up"]
    rows = []
    for result in results:
        if "error" in result:
            rows.append([result["title"], f"failed: {result['error']}"] + [""] * 2 * len(sides))
            continue
        row = [result["title"], time_text(result["torch"]["median_seconds"])]
        for side in sides:
            has = side in result
            row += [time_text(result[side]["median_seconds"]), f"{result[RATIOS[side]]:.2f}x"] if has else ["", ""]
        rows.append(row)
    mean_row = ["geometric mean", ""]
    for side in sides:
        mean = means.get(RATIOS[side])
        mean_row += ["", f"{mean:.2f}x" if mean else ""]
    return table(head, [*rows, mean_row])


def alone_table(results: list[dict]) -> list[str]:
    rows = []
    for result in results:
        sides = [result.get(side, {}) for side in ("torch", "device")]
        if all("alone" in side for side in sides):
            row = [result["title"]]
            for key in ("first_seconds", "settled_seconds"):
                row += [time_text(side["alone"][key]) for side in sides]
            rows.append(row + ([memory_text(side) for side in sides] if ", train," in result["title"] else ["", ""]))
    heads = ["first step: torch cpu", "headrace", "full speed after: torch cpu", "headrace", "peak memory: torch cpu"]
    return table(["case", *heads, "headrace"], rows) if rows else []


def notes(results: list[dict]) -> list[str]:
    lines = []
    for result in results:
        if "row_product" in result:
            read = result["row_product"]
            seconds = read["median_seconds"]
            lines.append(
                f"{result['title']}: a plain matrix-vector product reads the same {read['bytes'] / 1e6:,.0f} MB of "
                "weights "
                f"in {time_text(seconds)} ({read['bytes'] / seconds / 1e9:.0f} GB/s). The target is 85 % of that "
                "bandwidth "
                f"plus 1.5 ms: {time_text(reading_limit(result))}."
            )
    return lines


def summary(written: dict, names: list[str]) -> str:
    """The machine, the rows of some cases, and the geometric mean of all, for a README."""
    chosen = [result for name in names for result in written["results"] if result["name"] == name]
    *rows, _ = speed_table(chosen, {})  # its last row is the mean
    means = [
        f"{written['geometric_means'][key]:.2f}x ({TITLES[side]})"
        for side, key in RATIOS.items()
        if written["geometric_means"].get(key)
    ]
    count = sum(bool(result.get("counts_in_mean")) for result in written["results"])
    machine = f"{written['date']}, {machine_text(written['machine'], written['threads'])}."
    mean = f"Geometric mean of all {count} cases: {' and '.join(means)}." if means else ""
    return "\n".join([machine, "", *rows, "", mean]).rstrip()


def markdown(written: dict) -> str:
    results = written["results"]
    lines = [
        f"# torch cpu and {written['device']}",
        "",
        f"{written['date']}{', ' + written['commit'] if written['commit'] else ''}. "
        + machine_text(written["machine"], written["threads"]),
        "",
        "Median time of a step. Speed-up: torch's CPU time divided by Headrace's. *compiled* is "
        '`torch.compile(backend="headrace")`. A training step is forward, backward and Adam. The geometric mean '
        'leaves out '
        "the single additions.",
        "",
        *speed_table(results, written["geometric_means"]),
    ]
    for note in notes(results):
        lines += ["", note]
    alone = alone_table(results)
    if alone:
        lines += [
            "",
            "Each side runs in a fresh process with cold caches. *Full speed after*: time until steps stay within 10 "
            "% of "
            "steady state. *Peak memory*: growth of resident memory during three training steps, from the moment when "
            "model and batch are on the device.",
            "",
            *alone,
        ]
    return "\n".join(lines) + "\n"
