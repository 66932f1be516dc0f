# SPDX-License-Identifier: Apache-2.0
"""Reads the files of public test suites with our readers and with Python's, and compares.

    make build/tests/read_file
    python outside_suites.py build/tests/read_file FOLDER...

FOLDER is a checkout of nst/JSONTestSuite, apache/parquet-testing or apache/arrow-testing.  Needs
pyarrow (26.0.1 read these files).  Prints how many values or columns were equal, refused, or wrong,
then the reasons for the refusals, and ends with 1 if any was wrong.  A crash, a sanitizer's report
and 60 seconds are wrong, too: build read_file with them as `make sanitize` does.
"""
import collections
import json
import os
import re
import struct
import subprocess
import sys
import tempfile
import zlib

import pyarrow as pa
import pyarrow.parquet as pq

import parquet

EQUAL, REFUSED, WRONG, UNKNOWN = "equal", "refused", "wrong", "no oracle"
REFUSAL = 65  # exit code of read_file
UNCOMPARABLE = {"int96_from_spark.parquet": "Spark wrote the last row with negative nanoseconds"}


class Results:
    def __init__(self, program):
        self.program = program
        self.counts = collections.defaultdict(collections.Counter)
        self.reasons = collections.Counter()
        self.wrong = []

    def read(self, *arguments):
        """What read_file printed: (stdout, reason); no stdout if it refused the file or crashed."""
        try:
            done = subprocess.run([self.program, *arguments], capture_output=True, timeout=60)
        except subprocess.TimeoutExpired:
            return None, "crash: more than 60 s"
        message = done.stderr.decode(errors="replace").strip()
        if done.returncode == 0:
            return done.stdout.decode(), ""
        if done.returncode == REFUSAL:
            return None, message
        return None, f"crash: exit code {done.returncode}: {message[:2000]}"

    def add(self, kind, name, outcome, reason=""):
        if reason.startswith("crash"):
            outcome = WRONG
        self.counts[kind][outcome] += 1
        if outcome == WRONG:
            self.wrong.append(f"{kind}: {name}: {reason}")
        elif reason:
            self.reasons[kind, outcome, re.sub(r"^/\S*: |[0-9]+", lambda m: m[0][1:] and "" or "N", reason)] += 1

    def report(self):
        columns = EQUAL, REFUSED, UNKNOWN, WRONG
        print(f"{'kind':40} {'tried':>6}" + "".join(f"{c:>11}" for c in columns))
        for kind, counts in self.counts.items():
            print(f"{kind:40} {sum(counts.values()):6}" + "".join(f"{counts[c]:11}" for c in columns))
        print()
        for (kind, outcome, reason), count in sorted(self.reasons.items()):
            print(f"{kind}: {outcome} {count} x {reason}")
        for line in self.wrong:
            print("WRONG", line)


def dump(value):
    """A JSON value as read_file prints it; U+0000 is C0 80 there."""
    if value is None:
        return " n"
    if isinstance(value, bool):
        return " t" if value else " f"
    if isinstance(value, float):
        return " d" + ("%.17g" % value)
    if isinstance(value, str):
        return " s" + value.encode(errors="surrogatepass").replace(b"\0", b"\xc0\x80").hex()
    if isinstance(value, list):
        return " [" + "".join(map(dump, value)) + " ]"
    return " {" + "".join(dump(k) + dump(v) for k, v in value.items()) + " }"


def no_constant(name):
    raise ValueError(name)


def parse(data):
    return json.loads(data.decode(), parse_constant=no_constant, parse_int=float)


def refuse(results, kind, name, reason, is_invalid):
    """Counts a refusal; lists its reason unless the suite requires it."""
    listed = reason.startswith("crash") or not is_invalid
    results.add(kind, name, REFUSED, reason if reason.startswith("crash") else
                f"{name}: {reason.split(': ', 1)[-1]}" if listed else "")


def check_json(results, path, kind, data):
    """y_ must be read, with Python's value, and n_ refused; others may be either."""
    name = os.path.basename(path)
    out, reason = results.read("json", path)
    if out is None:
        refuse(results, kind, name, reason, name.startswith("n_"))
        return
    try:
        value = parse(data)
    except (ValueError, RecursionError) as e:
        results.add(kind, name, UNKNOWN if name.startswith("i_") else WRONG, f"{name}: Python: {e}")
        return
    equal = not name.startswith("n_") and out == dump(value)
    results.add(kind, name, EQUAL if equal else WRONG, "" if equal else f"got {out[:200]}")


def check_jsonl(results, path, kind, data, folder):
    """The file as the value of another key, and a string as the text."""
    name = os.path.basename(path)
    if b"\n" in data:
        return
    line = os.path.join(folder, "line.jsonl")
    for with_text in False, True:
        try:
            value = parse(data)
        except (ValueError, RecursionError):
            value = None
        if with_text and not isinstance(value, str):
            continue
        text = value if with_text else "marker"
        with open(line, "wb") as f:
            f.write(b'{"text":' + data + b"}" if with_text else b'{"x":' + data + b',"text":"marker"}')
        out, reason = results.read("jsonl", line)
        if out is None:
            refuse(results, kind, name, reason, name.startswith("n_"))
        elif name.startswith("n_"):
            results.add(kind, name, WRONG, f"read as {out}")
        else:
            wanted = " s" + re.sub("[\ud800-\udfff]", "\ufffd", text).encode().hex()
            results.add(kind, name, EQUAL if out == wanted else WRONG, "" if out == wanted else f"got {out}")


def json_suite(results, folder):
    with tempfile.TemporaryDirectory() as scratch:
        for part in "test_parsing", "test_transform":
            for name in sorted(os.listdir(os.path.join(folder, part))):
                path = os.path.join(folder, part, name)
                if not name.endswith(".json"):
                    continue
                with open(path, "rb") as f:
                    data = f.read()
                if part == "test_transform":
                    kind = "JSON, test_transform"
                else:
                    kind = "JSON, " + {"y": "y_, valid", "n": "n_, invalid", "i": "i_, either"}[name[0]]
                check_json(results, path, kind, data)
                if part == "test_parsing":
                    check_jsonl(results, path, kind.replace("JSON", "JSONL"), data, scratch)


def parquet_digests(path):
    if os.path.basename(path) in UNCOMPARABLE:
        return UNCOMPARABLE[os.path.basename(path)]
    try:
        return parquet.digest(path)
    except Exception as e:
        return f"pyarrow: {type(e).__name__}: {str(e).splitlines()[0][:60]}"


def check_parquet(results, path, kind, is_malformed):
    name = os.path.relpath(path, os.path.dirname(os.path.dirname(path)))
    out, reason = results.read("parquet", path)
    if is_malformed:
        lines = out.splitlines() if out else []
        refused = out is None or any(line.startswith("refused") for line in lines)
        results.add(kind, name, REFUSED if refused else UNKNOWN, reason if reason[:5] == "crash" else "")
        return
    wanted = parquet_digests(path)
    if out is None:
        refuse(results, kind, name, reason, False)
        return
    for i, line in enumerate(out.splitlines()):
        if line.startswith("refused"):
            results.add(kind, name, REFUSED, f"{name}: {line.split(': ', 1)[-1]}")
        elif isinstance(wanted, str):
            results.add(kind, name, UNKNOWN, f"{name}: {wanted}")
        else:
            equal = i < len(wanted) and line == wanted[i]
            results.add(kind, name, EQUAL if equal else WRONG,
                        "" if equal else f"column {i}: got {line}, pyarrow {wanted[i:i + 1]}")


def parquet_files(folder):
    for where, _, names in sorted(os.walk(folder)):
        for name in sorted(names):
            if name.endswith((".parquet", ".encrypted")):
                yield os.path.join(where, name)


def parquet_suite(results, folder):
    for part in sorted(os.listdir(folder)):
        for path in parquet_files(os.path.join(folder, part)):
            check_parquet(results, path, f"Parquet, {part}", part == "bad_data" or "corrupt" in path)


def arrow_leaves(field, path=None):
    """(path, type) of the leaves of a field, as users name them."""
    path = field.name if path is None else path
    t = field.type
    if pa.types.is_struct(t):
        for child in t:
            yield from arrow_leaves(child, f"{path}.{child.name}")
    elif pa.types.is_map(t):
        yield from arrow_leaves(t.key_field, f"{path}[].{t.key_field.name}")
        yield from arrow_leaves(t.item_field, f"{path}[].{t.item_field.name}")
    elif hasattr(t, "value_field"):
        yield from arrow_leaves(t.value_field, f"{path}[]")
    else:
        yield path, t


def arrow_entries(value, t, path, rep, level, out):
    """Appends (rep, value) of one leaf of a value, as parquet.shred does."""
    if value is None:
        out.append((rep, None))
    elif pa.types.is_struct(t):
        child = next(t.field(i) for i in range(t.num_fields)
                     if path.startswith("." + t.field(i).name) and path[len(t.field(i).name) + 1:][:1] in ("", ".", "["))
        arrow_entries(value[child.name], child.type, path[len(child.name) + 1:], rep, level, out)
    elif pa.types.is_map(t):
        pair = pa.struct([t.key_field, t.item_field])
        value = [{t.key_field.name: k, t.item_field.name: v} for k, v in value]
        arrow_list(value, pair, path, rep, level, out)
    elif hasattr(t, "value_field"):
        arrow_list(value, t.value_type, path, rep, level, out)
    else:
        out.append((rep, value))


def arrow_list(values, t, path, rep, level, out):
    if not values:
        out.append((rep, None))
    for i, v in enumerate(values):
        arrow_entries(v, t, path[2:], rep if i == 0 else level + 1, level + 1, out)


def arrow_digest(table, path, index):
    out, crc = [], 0
    field = table.schema.field(index)
    for value in table.column(index).to_pylist():
        arrow_entries(value, field.type, path[len(field.name):], 0, 0, out)
    for rep, value in out:
        data = b""
        if value is not None:
            value = value.encode() if isinstance(value, str) else value
            data = (struct.pack("<I", len(value)) + value if isinstance(value, bytes)
                    else struct.pack("<Q", int(value) % 2**64))
        crc = zlib.crc32(bytes((rep, 0)) + data, crc)
    return f"{len(out)}:{crc:08x}\n"


def open_arrow(path):
    for opener in pa.ipc.open_file, pa.ipc.open_stream:
        try:
            return opener(path).read_all()
        except Exception as e:
            error = f"pyarrow: {type(e).__name__}: {str(e).splitlines()[0][:60]}"
    return error


def check_arrow(results, path, kind):
    name = "/".join(path.split("/")[-2:])
    table = open_arrow(path)
    if isinstance(table, str):
        out, reason = results.read("arrow", path, "text")
        results.add(kind, name, UNKNOWN if reason[:5] == "crash" or out else REFUSED, reason or table)
        return
    for index, field in enumerate(table.schema):
        for leaf, t in arrow_leaves(field):
            out, reason = results.read("arrow", path, leaf)
            if out is None:
                what = "" if reason[:5] == "crash" else f" ({t})"
                results.add(kind, f"{name} {leaf}", REFUSED, reason + what if what == "" else
                            re.sub(re.escape(leaf), "COLUMN", reason.split(": ", 1)[-1])[:90] + what)
                continue
            wanted = arrow_digest(table, leaf, index)
            results.add(kind, f"{name} {leaf} ({t})", EQUAL if out == wanted else WRONG,
                        "" if out == wanted else f"got {out.strip()}, pyarrow {wanted.strip()}")


def check_malformed(results, path, kind, reader):
    """Whatever it holds must be read or refused."""
    columns = [()]
    if reader == "arrow":
        _, reason = results.read("arrow", path, "no such column")
        known = re.findall(r"[^,:;()]+", reason.rsplit("columns", 1)[-1])
        columns = [("no such column",)] + [(c.strip(),) for c in known[:20] if c.strip()]
    outs = [results.read(reader, path, *column) for column in columns]
    crash = next((reason for _, reason in outs if reason[:5] == "crash"), "")
    results.add(kind, os.path.basename(path), UNKNOWN if any(out for out, _ in outs) else REFUSED, crash)


def arrow_suite(results, folder):
    data = os.path.join(folder, "data")
    for where, _, names in sorted(os.walk(data)):
        for name in sorted(names):
            path = os.path.join(where, name)
            if name.endswith((".md", ".gz", ".csv", ".sh")):
                continue
            if "/integration/" in path:
                check_arrow(results, path, "Arrow, " + os.path.basename(where))
            elif "arrow-ipc" in path:
                check_malformed(results, path, "Arrow, malformed", "arrow")
            elif name.endswith(".parquet") and "fuzzing" not in path:
                check_parquet(results, path, "Parquet of arrow-testing", False)
            elif "/parquet/" in path:
                check_malformed(results, path, "Parquet of arrow-testing, malformed", "parquet")


def main():
    sys.setrecursionlimit(10000)
    results = Results(os.path.abspath(sys.argv[1]))
    for folder in sys.argv[2:]:
        here = os.listdir(folder)
        suite = json_suite if "test_parsing" in here else parquet_suite if "bad_data" in here else arrow_suite
        suite(results, os.path.abspath(folder))
    results.report()
    sys.exit(1 if results.wrong else 0)


if __name__ == "__main__":
    main()
