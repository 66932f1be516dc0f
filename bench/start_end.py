#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times what a run does before its first step and after its last: start, checkpoints, tokenizers, data.

    python3 bench/start_end.py start      [--layers 12] [--dim 768]      exec to first step, and PyTorch's
    python3 bench/start_end.py checkpoint [--layers 30] --folder FOLDER  save, verify and resume, and cp
    python3 bench/start_end.py tokenizer  [--megabytes 100]              training, and tokenizers' BpeTrainer
    python3 bench/start_end.py prepare    [--megabytes 100]              encoding, tokenizers' encode_batch, datatrove

--python PYTHON is an interpreter with torch, or with tokenizers and datatrove; without it only Llamero is timed.
--baseline BINARY times another build, too.  Programs alternate in --rounds rounds; minimum, median and maximum are
printed.

The text is the files of --text FOLDER, or what /usr/share/doc and Python's library have, in a random order, so its
size and words depend on the machine.  datatrove's DocumentTokenizer reads JSON lines and writes token IDs as prepare
does, without shuffling; each of its workers has a file of its own.  start counts from exec to the end of the program,
without its one step.  cp copies a checkpoint file by file.  Before a round memory is touched and freed, so that a
virtual machine backs it.
"""
import argparse
import json
import mmap
import os
import pathlib
import random
import re
import shutil
import statistics
import subprocess
import tempfile
import time

from against_torch import ROOT, processor
from tokenizer import PATTERN

TRAIN = """
import sys, time
from tokenizers import Regex, Tokenizer, models, pre_tokenizers, trainers
pattern, file, size = sys.argv[1], sys.argv[2], int(sys.argv[3])
t = Tokenizer(models.BPE())
t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "isolated"),
                                           pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
begin = time.perf_counter()
t.train([file], trainers.BpeTrainer(vocab_size=size, min_frequency=2, show_progress=False,
                                    special_tokens=["<a>", "<b>", "<c>"],
                                    initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
print(time.perf_counter() - begin)
"""
ENCODE = """
import json, sys, time
from tokenizers import Tokenizer
t = Tokenizer.from_file(sys.argv[1])
texts = [json.loads(line)["text"] for line in open(sys.argv[2])]
begin, ids = time.perf_counter(), 0
for at in range(0, len(texts), 1000):
    ids += sum(len(e.ids) for e in t.encode_batch_fast(texts[at:at + 1000], add_special_tokens=False))
print(time.perf_counter() - begin, ids)
"""
DATATROVE = """
import sys, time
from datatrove.executor import LocalPipelineExecutor
from datatrove.pipeline.readers import JsonlReader
from datatrove.pipeline.tokens import DocumentTokenizer
if __name__ == "__main__":
    tokenizer, parts, output, workers = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
    begin = time.perf_counter()
    LocalPipelineExecutor([JsonlReader(parts), DocumentTokenizer(output, tokenizer, shuffle_documents=False)],
                          tasks=workers, workers=workers, logging_dir=output + "/logs").run()
    print(time.perf_counter() - begin)
"""


def back_memory(bytes_):
    block = bytes(1 << 21)
    with mmap.mmap(-1, bytes_) as memory:
        for at in range(0, bytes_ - len(block), len(block)):
            memory[at:at + len(block)] = block


def run(command):
    """Seconds, and what it printed."""
    begin = time.perf_counter()
    out = subprocess.run([str(c) for c in command], check=True, text=True, stdout=subprocess.PIPE,
                         stderr=subprocess.STDOUT).stdout
    return time.perf_counter() - begin, out


def documents(folder, bytes_):
    """Files of text, in a random order, with at most that number of bytes."""
    patterns = [f"{folder.resolve()}/**/*"] if folder else ["/usr/share/doc/**/*", "/usr/lib/python3*/**/*.py"]
    found, paths = [], [p for pattern in patterns for p in sorted(pathlib.Path("/").glob(pattern[1:]))]
    random.Random(1).shuffle(paths)
    for path in paths:
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            continue
        if text and len(text.encode()) <= bytes_:
            found.append(text)
            bytes_ -= len(text.encode())
    return found


def train_command(a, binary, folder, *more):
    corpus = folder / "corpus.txt"
    corpus.write_text("the llama walks over a mountain and carries salt to the town.\n" * 20000)
    (folder / "run.toml").write_text("[job]\ndescription = \"bench\"\n")
    settings = {"model.dim": a.dim, "model.n_layers": a.layers, "model.n_heads": a.dim // 64,
                "model.n_kv_heads": a.dim // 192, "model.ffn_hidden": a.dim * 8 // 3,
                "model.vocab_size": 32000, "model.tie_embeddings": "false", "training.steps": 1,
                "training.local_batch_size": a.batch, "training.seq_len": 1024,
                "training.mixed_precision_param": "bfloat16", "activation_checkpoint.mode": "none",
                "data.tokenizer": "bytes", "training.dataset_path": corpus,
                "job.dump_folder": folder / "dump", "device.threads": a.threads}
    return [binary, "train", folder / "run.toml", *(f"{k}={v}" for k, v in settings.items()), *more]


def without_step(folder, seconds):
    step = json.loads((folder / "dump/metrics.jsonl").read_text().splitlines()[0])["step_seconds"]
    return seconds - step


def start(a, folder):
    for name, binary in a.binaries.items():
        shutil.rmtree(folder / "dump", ignore_errors=True)
        back_memory(a.memory << 30)
        seconds = run(train_command(a, binary, folder))[0]
        yield f"{name}, s", without_step(folder, seconds)
    if a.python:
        back_memory(a.memory << 30)
        seconds, out = run([a.python, ROOT / "bench/torch_llama.py", "--steps", 1, "--dim", a.dim,
                            "--heads", a.dim // 64, "--kv-heads", a.dim // 192, "--hidden", a.dim * 8 // 3,
                            "--layers", a.layers, "--batch", a.batch, "--threads", a.threads])
        yield "torch, s", seconds - json.loads(out.splitlines()[-1])["seconds"][0]


def copy(source, target):
    """Seconds of cp, file by file, and of fsync after it."""
    target.mkdir()
    copying = syncing = 0
    for path in sorted(source.iterdir()):
        copying += run(["cp", path, target / path.name])[0]
        with open(target / path.name, "rb") as file:
            begin = time.perf_counter()
            os.fsync(file.fileno())
            syncing += time.perf_counter() - begin
    shutil.rmtree(target)
    return copying, syncing


def checkpoint(a, folder):
    for name, binary in a.binaries.items():
        shutil.rmtree(folder / "dump", ignore_errors=True)
        back_memory(a.memory << 30)
        out = run(train_command(a, binary, folder, "checkpoint.enable=true",
                                "checkpoint.create_seed_checkpoint=true"))[1]
        seconds = float(re.search(r"saved: \S+ .B in (\S+) s", out)[1])
        saved = folder / "dump/checkpoint/step-0"
        size = sum(p.stat().st_size for p in saved.iterdir()) / 1e6
        yield f"{name} saves {size / 1e3:.2f} GB, MB/s", size / seconds
        yield f"{name} verifies, MB/s", size / run([binary, "checkpoint", "verify", saved])[0]
        if a.resume:
            seconds = run(train_command(a, binary, folder, "checkpoint.enable=true", "checkpoint.load_only=true"))[0]
            yield f"{name} resumes, s from exec to first step", without_step(folder, seconds)
    back_memory(a.memory << 30)
    copying, syncing = copy(saved, folder / "copy")
    yield "cp, MB/s", size / copying
    yield "cp and fsync, MB/s", size / (copying + syncing)


def tokenizer(a, folder):
    size = os.path.getsize(folder / "text.txt") / 1e6
    for name, binary in a.binaries.items():
        seconds = run([binary, "tokenizer", "train", "--force", "--vocab-size", a.vocabulary,
                       "--output", folder / "tokenizer.json", folder / "text.txt"])[0]
        yield f"{name}, MB/s", size / seconds
    if a.python:
        seconds = float(run([a.python, "-c", TRAIN, PATTERN, folder / "text.txt", a.vocabulary])[1])
        yield "tokenizers, MB/s", size / seconds


def prepare(a, folder):
    size = sum(len(t.encode()) for t in a.texts) / 1e6
    for name, binary in a.binaries.items():
        out = run([binary, "prepare", "--json", "--force", "--tokenizer", folder / "tokenizer.json", "--output",
                   folder / "tokens", folder / "text.jsonl"])[1]
        yield f"{name}, MB/s", size / json.loads(out.splitlines()[-1])["seconds"]
    if a.python:
        out = run([a.python, "-c", ENCODE, folder / "tokenizer.json", folder / "text.jsonl"])[1]
        yield "tokenizers, MB/s", size / float(out.split()[0])
        shutil.rmtree(folder / "datatrove", ignore_errors=True)
        (folder / "encode.py").write_text(DATATROVE)
        out = run([a.python, folder / "encode.py", folder / "tokenizer.json", folder / "parts",
                   folder / "datatrove", a.threads])[1]
        yield "datatrove, MB/s", size / float(out.splitlines()[-1])


def write_text(a, folder):
    a.texts = documents(a.text, int(a.megabytes * 1e6))
    (folder / "text.txt").write_text("\n".join(a.texts))
    lines = [json.dumps({"text": text}, ensure_ascii=False) + "\n" for text in a.texts]
    (folder / "text.jsonl").write_text("".join(lines))
    (folder / "parts").mkdir()
    for i in range(a.threads):
        (folder / f"parts/{i}.jsonl").write_text("".join(lines[i::a.threads]))
    if a.what == "prepare":
        run([a.binary, "tokenizer", "train", "--vocab-size", a.vocabulary, "--output", folder / "tokenizer.json",
             folder / "text.txt"])


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = {f.__name__: f for f in (start, checkpoint, tokenizer, prepare)}
    p.add_argument("what", choices=parts)
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--binary", type=pathlib.Path, default=ROOT / "build/llamero")
    p.add_argument("--baseline", type=pathlib.Path)
    p.add_argument("--python")
    p.add_argument("--folder", help="where files go; default: the system's folder for temporary files")
    p.add_argument("--threads", type=int, default=os.cpu_count())
    p.add_argument("--dim", type=int, default=768, help="a multiple of 192")
    p.add_argument("--layers", type=int, default=12)
    p.add_argument("--batch", type=int, default=4)
    p.add_argument("--memory", type=int, default=8, help="start, checkpoint: GiB to touch before each run")
    p.add_argument("--resume", action="store_true", help="checkpoint: time resuming, too")
    p.add_argument("--text", type=pathlib.Path, help="tokenizer, prepare: a folder of text files")
    p.add_argument("--megabytes", type=float, default=100)
    p.add_argument("--vocabulary", type=int, default=32000)
    a = p.parse_args()
    a.binaries = {"llamero": a.binary} | ({"baseline": a.baseline} if a.baseline else {})
    rounds = {}
    with tempfile.TemporaryDirectory(dir=a.folder) as name:
        folder = pathlib.Path(name)
        if a.what in ("tokenizer", "prepare"):
            write_text(a, folder)
        for _ in range(a.rounds):
            for key, value in parts[a.what](a, folder):
                rounds.setdefault(key, []).append(value)
    print(f"{processor()}; {a.threads} threads")
    for key, values in rounds.items():
        print(f"{key:48} {min(values):9.2f} {statistics.median(values):9.2f} {max(values):9.2f}", flush=True)


if __name__ == "__main__":
    main()
