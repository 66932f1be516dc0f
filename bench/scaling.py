#!/usr/bin/env python3
"""How the time and memory of a step scale: one axis at a time around a small Llama.

    python3 bench/scaling.py [--binary build/llamero] [--rounds 3] [--axes tokens,width,...]

Every point is a short `llamero train` per round; its time is the median of the steps after warmup.  The share
of the cores that other processes used meanwhile comes from /proc/stat: rounds above --quiet are dropped
if there is a better one, and a point's time is the median of the remaining rounds.  Memory is the peak
RSS of the process, compared with `llamero plan`.  Exponents are least-squares fits in log-log space.
Writes scaling.json and scaling.svg, and prints the tables of docs/scaling.md.
"""
# SPDX-License-Identifier: Apache-2.0
import argparse
import json
import math
import os
import pathlib
import statistics
import subprocess
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
BASE = {"dim": 256, "n_layers": 2, "rows": 1, "seq_len": 512, "vocab_size": 1024, "threads": 2}
AXES = {  # name: (key of BASE, label, points, changes of other keys)
    "tokens": ("seq_len", "tokens per row, T", [2 ** i for i in range(9, 17)], {}),
    "width": ("dim", "width", [128, 256, 512, 1024, 2048], {}),
    "depth": ("n_layers", "blocks", [1, 2, 4, 8, 16, 32], {}),
    "rows": ("rows", "rows of 512", [1, 2, 4, 8, 16, 32], {}),
    "vocabulary": ("vocab_size", "vocabulary", [1024, 4096, 16384, 65536, 131072], {}),
    "threads": ("threads", "threads", [1, 2], {"dim": 1024, "rows": 4}),
}


def settings(point, folder):
    s = dict(BASE, **point)
    heads = max(1, s["dim"] // 64)
    return {
        "model.dim": s["dim"], "model.n_layers": s["n_layers"], "model.n_heads": heads,
        "model.n_kv_heads": heads, "model.ffn_hidden": s["dim"] * 11 // 4,
        "model.vocab_size": s["vocab_size"], "model.tie_embeddings": "false",
        "training.local_batch_size": s["rows"], "training.seq_len": s["seq_len"],
        "activation_checkpoint.mode": "none", "data.tokenizer": "bytes", "data.streams": 8,
        "training.dataset_path": folder / "corpus.txt", "metrics.log_freq": 1,
        "job.dump_folder": folder / "run", "device.threads": s["threads"]}


def command(binary, name, point, folder, **more):
    values = dict(settings(point, folder), **more)
    return [binary, name, folder / "run.toml"] + [f"{k}={v}" for k, v in values.items()]


def plan(binary, point, folder):
    out = subprocess.run(command(binary, "plan", point, folder) + ["--json"], check=True,
                         capture_output=True, text=True)
    planned = json.loads(out.stdout)
    return planned["step_seconds"], planned["ranks"][0]["total"]


def busy_seconds():
    """Busy CPU seconds of all cores since boot, including time stolen by other guests."""
    ticks = [int(x) for x in pathlib.Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    return (sum(ticks) - ticks[3] - ticks[4]) / os.sysconf("SC_CLK_TCK")


def train(binary, point, folder, guess, budget):
    """Median seconds per step, share of the cores that other processes used, peak RSS in bytes."""
    warm = 2 if guess < 2 else 1
    steps = warm + max(2, min(24, int(budget / guess)))
    metrics = folder / "run/metrics.jsonl"
    metrics.unlink(missing_ok=True)
    busy, begin = busy_seconds(), time.monotonic()
    child = subprocess.Popen(command(binary, "train", point, folder, **{"training.steps": steps}),
                             stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    wall = time.monotonic() - begin
    others = max(0, busy_seconds() - busy - usage.ru_utime - usage.ru_stime) / (wall * os.cpu_count())
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise SystemExit(f"train failed with {child.returncode}: {point}")
    lines = [json.loads(line) for line in metrics.read_text().splitlines()]
    times = [line["step_seconds"] for line in lines[warm:]]
    return statistics.median(times), others, usage.ru_maxrss * 1024


def wait_for_quiet(share, patience):
    end = time.monotonic() + patience
    while time.monotonic() < end:
        busy = busy_seconds()
        time.sleep(1)
        if busy_seconds() - busy <= share * os.cpu_count():
            return


def update_median(p, quiet):
    """Sets a point's time to the median of its quiet rounds, or of the quietest; returns how many are quiet."""
    least = max(quiet, min(p["others"]))
    counted = [t for t, o in zip(p["seconds"], p["others"]) if o <= least]
    p["median"] = statistics.median(counted)
    return len(counted) if min(p["others"]) <= quiet else 0


def measure(a, folder, results):
    for name in a.axes:
        key, _, values, others = AXES[name]
        old = {p["value"]: p for p in results.get(name, [])} if a.again else {}
        results[name] = []
        for value in values:
            point = dict(others, **{key: value})
            guess, planned = plan(a.binary, point, folder)
            new = {"value": value, "point": point, "seconds": [], "others": [], "peak": 0}
            p = old.get(value, new)
            results[name].append(dict(p, guess=guess, planned=planned))
    for i in range(a.rounds):
        for name in a.axes:
            for p in results[name]:
                if p["seconds"] and update_median(p, a.quiet) >= (1 if p["median"] > a.once else a.rounds):
                    continue
                wait_for_quiet(a.quiet, a.patience)
                seconds, others, peak = train(a.binary, p["point"], folder, p["guess"], a.budget)
                p["seconds"].append(seconds)
                p["others"].append(others)
                p["peak"] = max(p["peak"], peak)
                update_median(p, a.quiet)
                print(f"round {i + 1} {name} {p['value']}: {seconds:.4g} s, others {others:.3f}, "
                      f"{peak / 2**20:.0f} MiB", flush=True)
                save(a, results)


def save(a, results):
    kept = {name: results[name] for name in AXES if name in results}
    (a.output / "scaling.json").write_text(json.dumps({"base": BASE, "axes": kept}, indent=1) + "\n")
    return kept


def slope(xs, ys):
    xs, ys = [math.log(x) for x in xs], [math.log(y) for y in ys]
    mx, my = statistics.fmean(xs), statistics.fmean(ys)
    return sum((x - mx) * (y - my) for x, y in zip(xs, ys)) / sum((x - mx) ** 2 for x in xs)


def exponents(points, key):
    """Over all points, the first two, and the last two."""
    xs, ys = [p["value"] for p in points], [p[key] for p in points]
    return [slope(xs, ys), slope(xs[:2], ys[:2]), slope(xs[-2:], ys[-2:])]


def tables(results):
    lines = ["| axis | from | to | exponent of time | at its ends | exponent of memory | at its ends |",
             "|---|---|---|---|---|---|---|"]
    for name, points in results.items():
        t, m = exponents(points, "median"), exponents(points, "peak")
        lines.append(f"| {AXES[name][1]} | {points[0]['value']} | {points[-1]['value']} | {t[0]:.2f} | "
                     f"{t[1]:.2f}, {t[2]:.2f} | {m[0]:.2f} | {m[1]:.2f}, {m[2]:.2f} |")
    lines += ["", "| axis | value | s/step | tokens/s | planned MiB | peak MiB | peak / plan |",
              "|---|---|---|---|---|---|---|"]
    for name, points in results.items():
        for p in points:
            s = dict(BASE, **p["point"])
            rate = s["rows"] * s["seq_len"] / p["median"]
            lines.append(f"| {AXES[name][1]} | {p['value']} | {p['median']:.4g} | {rate:.0f} | "
                         f"{p['planned'] / 2**20:.1f} | {p['peak'] / 2**20:.1f} | "
                         f"{p['peak'] / p['planned']:.3f} |")
    return "\n".join(lines)


def short(x):
    for unit, size in (("Mi", 2 ** 20), ("Ki", 1024)):
        if x >= size and x % size == 0:
            return f"{x // size}{unit}"
    return str(x)


def panel(left, top, title, label, unit, points, series):
    """One log-log panel; series: (key, scale, filled)."""
    width, height = 214, 118
    xs = [p["value"] for p in points]
    ys = [p[key] * scale for p in points for key, scale, _ in series]
    low, high = math.floor(math.log10(min(ys)) + 1e-9), math.ceil(math.log10(max(ys)) - 1e-9)
    high = max(high, low + 1)

    def at(x, y):
        return (left + width * math.log(x / xs[0]) / math.log(xs[-1] / xs[0]),
                top + height * (high - math.log10(y)) / (high - low))
    out = [f'<text x="{left}" y="{top - 9}" class="title">{title}</text>']
    for power in range(low, high + 1):
        _, y = at(xs[0], 10 ** power)
        text = f"{10 ** power:g}"
        out.append(f'<path d="M{left} {y:.1f}h{width}" class="grid"/>'
                   f'<text x="{left - 6}" y="{y + 4:.1f}" text-anchor="end">{text}</text>')
    for x in xs:
        px, _ = at(x, ys[0])
        out.append(f'<path d="M{px:.1f} {top + height}v4" class="tick"/><text x="{px:.1f}" '
                   f'y="{top + height + 16}" text-anchor="middle">{short(x)}</text>')
    out.append(f'<path d="M{left} {top}v{height}h{width}" class="tick"/>'
               f'<text x="{left + width / 2}" y="{top + height + 32}" text-anchor="middle">{label}</text>'
               f'<text transform="translate({left - 42} {top + height / 2}) rotate(-90)" '
               f'text-anchor="middle">{unit}</text>')
    for key, scale, filled in series:
        dots = [at(p["value"], p[key] * scale) for p in points]
        kind = "measured" if filled else "planned"
        if filled:
            line = "L".join(f"{x:.1f} {y:.1f}" for x, y in dots)
            out.append(f'<path d="M{line}" class="line"/>')
        out += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{3 if filled else 5}" class="{kind}"/>'
                for x, y in dots]
    return "".join(out)


STYLE = ("text{font:11px sans-serif;fill:#444}.title{font-weight:bold;font-size:12px;fill:#111}"
         ".grid{stroke:#ddd;fill:none}.tick{stroke:#888;fill:none}.line{stroke:#1a6fb0;fill:none;"
         "stroke-width:1.5}.measured{fill:#1a6fb0}.planned{fill:none;stroke:#c8501e;stroke-width:1.2}")


def picture(results):
    names = list(results)
    columns, out = 3, []
    for i, name in enumerate(names):
        points, left, top = results[name], 66 + i % columns * 296, 34 + i // columns * 400
        time, memory = exponents(points, "median"), exponents(points, "peak")
        ends = f" ({time[1]:.2f} to {time[2]:.2f})" if len(points) > 2 else ""
        out.append(panel(left, top, f"time: {time[0]:.2f}{ends}", AXES[name][1], "seconds per step",
                         points, [("median", 1, True)]))
        ends = f" ({memory[1]:.2f} to {memory[2]:.2f})" if len(points) > 2 else ""
        out.append(panel(left, top + 195, f"memory: {memory[0]:.2f}{ends}", AXES[name][1], "MiB",
                         points, [("planned", 2 ** -20, False), ("peak", 2 ** -20, True)]))
    height = 400 * math.ceil(len(names) / columns) + 22
    key = (f'<circle cx="66" cy="{height - 14}" r="3" class="measured"/><text x="76" y="{height - 10}">'
           f'measured</text><circle cx="146" cy="{height - 14}" r="5" class="planned"/><text x="158" '
           f'y="{height - 10}">planned.  Titles: the exponent over all points (over the first two to the '
           'last two).</text>')
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 900 {height}" width="900" '
            f'height="{height}"><style>{STYLE}</style><rect width="900" height="{height}" fill="#fff"/>'
            + "\n".join(out) + key + "</svg>\n")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    p.add_argument("--binary", default=ROOT / "build/llamero")
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--axes", default=",".join(AXES), help="axes to measure, separated by commas")
    p.add_argument("--budget", type=float, default=1.5, help="approximate seconds of steps per point")
    p.add_argument("--once", type=float, default=4, help="measure steps longer than this, in seconds, in one round only")
    p.add_argument("--output", type=pathlib.Path, default=ROOT / "docs", help="folder for .json, .svg")
    p.add_argument("--quiet", type=float, default=0.05, help="maximum share of the cores that other processes may use")
    p.add_argument("--patience", type=float, default=0, help="seconds to wait at each point for an idle machine")
    p.add_argument("--again", action="store_true", help="add rounds to those in the .json file")
    p.add_argument("--draw", action="store_true", help="only draw the figures from the .json file")
    a = p.parse_args()
    a.axes = [] if a.draw else a.axes.split(",")
    had = a.output / "scaling.json"
    results = json.loads(had.read_text())["axes"] if a.draw or a.again else {}
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        line = "the llama walks over a mountain and carries salt to the town.\n"
        (folder / "corpus.txt").write_text(line * 20000)
        (folder / "run.toml").write_text("[job]\ndescription = \"scaling\"\n")
        measure(a, folder, results)
    results = save(a, results)
    (a.output / "scaling.svg").write_text(picture(results))
    print(tables(results))


if __name__ == "__main__":
    main()
