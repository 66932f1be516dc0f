#!/usr/bin/env python3
"""`llamero plan` estimates of step time versus published measurements.

    python3 bench/estimates.py [--binary build/llamero] > tables
    python3 bench/estimates.py --fit       # the efficiency that makes each fitted row exact
    python3 bench/estimates.py --own       # short training runs on this machine versus their plans

Each row is a published run: model, mesh, batch and machine, as settings of a plan.  What a source leaves
open is guessed; docs/estimates.md has the tables and lists the guesses.
"""
# SPDX-License-Identifier: Apache-2.0
import argparse
import json
import pathlib
import resource
import statistics
import subprocess
import tempfile
import typing

ROOT = pathlib.Path(__file__).resolve().parent.parent


LLAMAS = {  # width, blocks, heads, key/value heads, feed-forward, vocabulary
    "1B": (2048, 16, 32, 8, 7168, 128256), "8B": (4096, 32, 32, 8, 14336, 128256),
    "13B": (5120, 40, 40, 40, 13824, 32000), "70B": (8192, 80, 64, 8, 28672, 128256),
    "405B": (16384, 126, 128, 8, 53248, 128256)}
QWENS = {
    "0.5B": (896, 24, 14, 2, 4864, 151936), "1.5B": (1536, 28, 12, 2, 8960, 151936),
    "3B": (2048, 36, 16, 2, 11008, 151936), "7B": (3584, 28, 28, 4, 18944, 152064)}


def shape(sizes, seq_len, rows, tied=False, **more):
    """rows: the microbatch size of a rank."""
    names = "dim", "n_layers", "n_heads", "n_kv_heads", "ffn_hidden", "vocab_size"
    return {**{f"model.{name}": size for name, size in zip(names, sizes)},
            "model.tie_embeddings": str(tied).lower(), "training.seq_len": seq_len,
            "training.local_batch_size": rows, **more}


def llama(name, seq_len, rows, **more):
    return shape(LLAMAS[name], seq_len, rows, **more)


def qwen(name, **more):
    """LLMQ's: 524288 tokens per step in rows of 1024; the microbatch size is a guess."""
    return shape(QWENS[name], 1024, 16, name != "7B", **batch(512), **NONE, **more)


def gpt(width, blocks, heads, vocabulary, seq_len, rows, tied=True, **more):
    """A feed-forward layer of two matrices of 4 x width, as three matrices with the same FLOPs."""
    ffn = round(width * 8 / 3 / 64) * 64
    return shape((width, blocks, heads, heads, ffn, vocabulary), seq_len, rows, tied, **more)


def gpt_tokens(width, blocks, vocabulary, seq_len, tflops):
    """Tokens per second and device, from FLOP/s as Megatron-LM counts them: without the causal mask."""
    token = 72 * blocks * width ** 2 * (1 + seq_len / 6 / width + vocabulary / 12 / blocks / width)
    return tflops * 1e12 / token


TP, PP, CP = (f"parallelism.{n}_parallel_degree" for n in ("tensor", "pipeline", "context"))
REPLICATE = "parallelism.data_parallel_replicate_degree"
CHUNKS = {"parallelism.pipeline_parallel_schedule": "Interleaved1F1B"}
NONE, FULL = ({"activation_checkpoint.mode": m} for m in ("none", "full"))
# 1: that program computes the head for every token, and a plan only for those that are masked
MASKED = {"objective.name": "masked", "objective.mask_probability": 1,
          "objective.mask_token": "<|reserved_special_token_100|>"}
ZERO1 = {"parallelism.fsdp_shard_gradients": "false"}
# torchtitan's selective mode recomputes every second GEMM; every second block costs the same.
HALF = {"activation_checkpoint.mode": "selective",
        "activation_checkpoint.selective_ac_option": "2"}
MI325X = {"device.memory_rate": 6e12, "device.memory_bytes": 256e9}
FP8 = {"model.converters": '["float8"]'}
# Programs that multiply FP8 natively on MI300X; this one does not (docs/gpu-amd.md).
AMD_FP8 = {"device.fp8_speedup": 2}
A100 = {"device.peak_flops": 312e12, "device.memory_rate": 2.039e12, "device.memory_bytes": 80e9,
        "device.node_rate": 300e9, "device.network_rate": 25e9}


def batch(rows):
    return {"training.global_batch_size": rows}


def megatron(parameters, heads, width, blocks, tp, pp, ranks, rows, tflops):
    micro = 1 if pp > 1 else rows // (ranks // tp)
    settings = gpt(width, blocks, heads, 131072, 4096, micro, False, **batch(rows), **NONE, **ZERO1,
                   **{TP: tp, PP: pp})
    return Row("Megatron-LM", f"GPT {parameters}: TP {tp}, PP {pp}, {rows} rows of 4096", "h100",
               ranks, gpt_tokens(width, blocks, 131072, 4096, tflops), settings)


class Row(typing.NamedTuple):
    source: str
    what: str
    machine: str
    ranks: int
    tokens: float  # a second and a rank, published
    settings: dict
    note: str = ""


LOW_POWER = "500 W modules"
A100_NOTE = "A100, by overrides"

BF16_ROWS = [
    Row("LLMQ", "Qwen2.5 0.5B: 512 rows of 1024", "h100", 1, 149500, qwen("0.5B")),
    Row("LLMQ", "1.5B", "h100", 1, 58875, qwen("1.5B")),
    Row("LLMQ", "3B", "h100", 1, 30915, qwen("3B")),
    Row("LLMQ", "7B", "h100", 1, 13863, qwen("7B"), "**fitted**: efficiency of h100, h200"),
    Row("llm.c", "GPT-2 1558M: ZeRO-1, 1024 rows of 1024", "h100", 8, 46811,
        gpt(1600, 48, 25, 50304, 1024, 16, **batch(1024), **NONE, **ZERO1)),
    Row("llm.c", "GPT-2 124M: 512 rows", "h100", 8, 218000,
        gpt(768, 12, 12, 50304, 1024, 64, **batch(512), **NONE, **ZERO1, **A100), A100_NOTE),
    Row("llm.c", "350M", "h100", 8, 80000,
        gpt(1024, 24, 16, 50304, 1024, 64, **batch(512), **NONE, **ZERO1, **A100), A100_NOTE),
    Row("llm.c", "774M", "h100", 8, 39000,
        gpt(1280, 36, 20, 50304, 1024, 32, **batch(512), **NONE, **ZERO1, **A100), A100_NOTE),
    megatron("1.7B", 16, 2048, 24, 1, 1, 48, 192, 408.8),
    megatron("7.1B", 32, 4096, 30, 2, 1, 96, 192, 465.9),
    megatron("16B", 48, 6144, 32, 4, 1, 192, 192, 489.1),
    megatron("32B", 56, 7168, 48, 8, 1, 384, 192, 459.6),
    megatron("70B", 64, 8192, 84, 8, 2, 768, 384, 419.7),
    megatron("119B", 80, 10240, 92, 8, 4, 1536, 768, 420.5),
    megatron("177B", 96, 12288, 96, 8, 6, 2304, 1152, 432.8),
    megatron("314B", 128, 16384, 96, 8, 8, 3072, 1536, 474.4),
    megatron("462B", 144, 18432, 112, 8, 16, 6144, 3072, 459.9),
    Row("torchtitan", "Llama 3 8B: FSDP 64, 1 row of 8192", "h100", 64, 2973,
        llama("8B", 8192, 1, **HALF, **A100), A100_NOTE),
    Row("torchtitan", "Llama 2 13B: FSDP 64, 2 rows of 4096", "h100", 64, 2162,
        llama("13B", 4096, 2, **NONE, **A100), A100_NOTE),
    Row("torchtitan", "Llama 3 70B: FSDP 64, 1 row of 8192", "h100", 64, 331,
        llama("70B", 8192, 1, **FULL, **A100), A100_NOTE),
    Row("torchtitan", "70B: 2 rows", "h100", 64, 353, llama("70B", 8192, 2, **FULL, **A100), A100_NOTE),
    Row("torchtitan", "Llama 3 8B: FSDP 8, 2 rows of 8192, compiled", "h100", 8, 6667,
        llama("8B", 8192, 2, **HALF), LOW_POWER),
    Row("torchtitan", "not compiled", "h100", 8, 5762, llama("8B", 8192, 2, **HALF), LOW_POWER),
    Row("torchtitan", "FSDP 128, compiled", "h100", 128, 6514, llama("8B", 8192, 2, **HALF), LOW_POWER),
    Row("torchtitan", "FSDP 8, TP 8, 12 rows", "h100", 64, 4378,
        llama("8B", 8192, 12, **HALF, **{TP: 8}), LOW_POWER),
    Row("torchtitan", "Llama 3 70B: FSDP 32, TP 8, 16 rows", "h100", 256, 597.3,
        llama("70B", 8192, 16, **FULL, **{TP: 8}), LOW_POWER),
    Row("frontier-torchtitan", "Llama 3 8B: FSDP 64, 1 row of 8192", "mi250x", 64, 1333,
        llama("8B", 8192, 1, **HALF), "**fitted**: efficiency of mi250x, mi300x"),
    Row("torchtitan-mlm", "masked 1B: HSDP 2 x 32, TP 8, 12 rows of 16384", "mi250x", 512, 2048,
        llama("1B", 16384, 12, **FULL, **MASKED, **{TP: 8, REPLICATE: 2}),
        "with the head of every token"),
    Row("frontier-torchtitan", "Llama 3 8B: HSDP 20 x 32, TP 8, 21 rows of 8192", "mi250x", 5120, 597,
        llama("8B", 8192, 21, **FULL, **{TP: 8, REPLICATE: 20})),
    Row("frontier-guide", "Llama 3 8B: FSDP 512, 4 rows of 8192", "mi250x", 512, 345,
        llama("8B", 8192, 4, **NONE), "Accelerate, wrapped by size"),
    Row("NxD Training", "Llama 3.1 8B: ZeRO-1 32, TP 32, 1024 rows of 8192", "trn1", 1024,
        47.95 * 8192 / 1024, llama("8B", 8192, 1, **batch(1024), **ZERO1, **{TP: 32}),
        "**fitted**: efficiency of trn1, trn2"),
    Row("NxD Training", "Llama 3.1 70B: DP 4, TP 32, PP 8", "trn1", 1024, 7.94 * 8192 / 1024,
        llama("70B", 8192, 1, **batch(1024), **ZERO1, **{TP: 32, PP: 8})),
    Row("NxD Training", "70B, a log: DP 2", "trn1", 512, 1024 * 8192 / 321.89 / 512,
        llama("70B", 8192, 1, **batch(1024), **ZERO1, **{TP: 32, PP: 8})),
]


def llama8(name, seq_len, rows, **more):
    return llama(name, seq_len, rows, **FP8, **more)


FP8_ROWS = [
    Row("LLMQ", "Qwen2.5 0.5B: 512 rows of 1024", "h100", 1, 164000,
        qwen("0.5B", **FP8)),
    Row("LLMQ", "1.5B", "h100", 1, 73000, qwen("1.5B", **FP8)),
    Row("LLMQ", "3B", "h100", 1, 40400, qwen("3B", **FP8)),
    Row("LLMQ", "7B", "h100", 1, 19194, qwen("7B", **FP8)),
    Row("Megatron-Bridge", "Llama 3 8B: FSDP 8, 128 rows of 8192", "h100", 8, 14451,
        llama8("8B", 8192, 1, **batch(128), **NONE)),
    Row("Megatron-Bridge", "Llama 3 70B: TP 4, PP 8, 5 chunks, 256 rows", "h100", 64, 1664,
        llama8("70B", 8192, 1, **batch(256), **NONE, **CHUNKS, **{
            TP: 4, PP: 8, "parallelism.pipeline_parallel_layers_per_stage": 2,
            "parallelism.pipeline_parallel_remainder": "last"})),
    Row("torchtitan", "Llama 3.1 8B: FSDP 32, 2 rows of 8192", "h200", 32, 10938,
        llama8("8B", 8192, 2, **HALF)),
    Row("torchtitan", "FSDP 64", "h200", 64, 10753, llama8("8B", 8192, 2, **HALF)),
    Row("torchtitan", "Llama 3 8B: FSDP 8, 2 rows of 8192", "h100", 8, 8532,
        llama8("8B", 8192, 2, **HALF), LOW_POWER),
    Row("torchtitan", "FSDP 128", "h100", 128, 8380, llama8("8B", 8192, 2, **HALF), LOW_POWER),
    Row("torchtitan", "FSDP 8, TP 8, 12 rows", "h100", 64, 5078.1,
        llama8("8B", 8192, 12, **HALF, **{TP: 8}), LOW_POWER),
    Row("torchtitan", "8B: FSDP 8, 1 row of 32768", "h100", 8, 3890,
        llama8("8B", 32768, 1, **FULL), LOW_POWER),
    Row("torchtitan", "CP 2, 1 row of 65536", "h100", 8, 2540, llama8("8B", 65536, 1, **FULL, **{CP: 2}),
        LOW_POWER),
    Row("torchtitan", "CP 4, 1 row of 131072", "h100", 8, 1071,
        llama8("8B", 131072, 1, **FULL, **{CP: 4}), LOW_POWER),
    Row("torchtitan", "CP 8, 1 row of 262144", "h100", 8, 548,
        llama8("8B", 262144, 1, **FULL, **{CP: 8}), LOW_POWER),
    Row("torchtitan", "Llama 3 70B: FSDP 32, TP 8, 16 rows of 8192", "h100", 256, 829,
        llama8("70B", 8192, 16, **FULL, **{TP: 8}), LOW_POWER),
    Row("torchtitan", "Llama 3 405B: FSDP 8, TP 8, PP 8, 32 rows, 1F1B", "h100", 512, 100,
        llama8("405B", 8192, 32, **FULL, **ZERO1, **{TP: 8, PP: 8}), LOW_POWER),
    Row("torchtitan", "interleaved", "h100", 512, 128,
        llama8("405B", 8192, 32, **FULL, **ZERO1, **CHUNKS, **{TP: 8, PP: 8}), LOW_POWER),
    Row("Primus", "Llama 3.1 8B: 64 replicas, 2 rows of 8192", "mi300x", 64, 16186,
        llama8("8B", 8192, 2, **NONE, **MI325X, **AMD_FP8, **{REPLICATE: 64}),
        "MI325X with native FP8, by overrides"),
    Row("Transformer Engine", "Llama 3 8B: FSDP 8, 4 rows", "mi300x", 8, 474e12 / 51.47e9,
        llama8("8B", 8192, 4, **NONE, **AMD_FP8),
        "native FP8, by an override; assumes rows of 8192"),
]


class PlanError(Exception):
    pass


def plan(binary, row, **more):
    # Memory without limit: the row needs a time even where our own states would not fit.
    values = {"device.hardware": row.machine, "data.tokenizer": "", "device.memory_bytes": 1e18,
              "training.dataset_path": "/nowhere.txt", **row.settings, **more}
    with tempfile.NamedTemporaryFile(suffix=".toml") as empty:
        out = subprocess.run([binary, "plan", empty.name, "--json", "--ranks", str(row.ranks)]
                             + [f"{k}={v}" for k, v in values.items()],
                             capture_output=True, text=True, check=False)
    if out.returncode:
        raise PlanError(out.stderr.strip().split("\n")[-1])
    return json.loads(out.stdout)["estimate"]


def figure(tokens):
    return f"{tokens:.0f}" if tokens >= 1000 else f"{tokens:.3g}"


def table(binary, rows):
    errors = []
    print("| run | what | ranks | tokens/s | planned | error | MFU | bottleneck | idle | note |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for row in rows:
        try:
            e = plan(binary, row)
        except PlanError as why:
            print(f"| {row.source} | {row.what} | {row.ranks} {row.machine} | {figure(row.tokens)} "
                  f"| | | | | | {why} |")
            continue
        seconds = e["seconds"]
        idle = 1 - (seconds["matmul"] + seconds["memory"] + seconds["update"]) / sum(
            seconds.values())
        error = e["tokens_per_second_per_rank"] / row.tokens - 1
        if "fitted" not in row.note:
            errors.append((error, row.note))
        print(f"| {row.source} | {row.what} | {row.ranks} {row.machine} | {figure(row.tokens)} | "
              f"{figure(e['tokens_per_second_per_rank'])} | {100 * error:+.0f} % | "
              f"{100 * e['mfu']:.0f} % | {e['limit']} | {100 * idle:.0f} % | {row.note} |")
    print()
    summary("rows without a fitted parameter", errors)
    summary("of them that are not on 500 W modules", [e for e in errors if LOW_POWER not in e[1]])


def summary(what, errors):
    """errors: (relative error, note) of each row."""
    size = sorted(abs(error) for error, note in errors)
    print(f"{len(size)} {what}: median absolute error {100 * statistics.median(size):.0f} %, "
          f"worst {100 * size[-1]:.0f} %, "
          f"mean error {100 * statistics.mean(error for error, note in errors):+.0f} %.\n")


def fit(binary):
    for row in BF16_ROWS:
        if "fitted" not in row.note:
            continue
        low, high = 0.05, 1.0
        for _ in range(30):
            middle = (low + high) / 2
            e = plan(binary, row, **{"device.efficiency": middle})
            if e["tokens_per_second_per_rank"] < row.tokens:
                low = middle
            else:
                high = middle
        print(f"{low:.3f} {row.note}")


OWN = {  # settings planned and trained on this machine
    "125M": (shape((768, 12, 12, 4, 2048, 32000), 1024, 1, **NONE)),
    "3M": (shape((256, 2, 4, 4, 704, 1024), 512, 4, **NONE)),
    "17M, full recomputation": (shape((512, 4, 8, 4, 1408, 4096), 512, 2, **FULL)),
    "17M, float32": (shape((512, 4, 8, 4, 1408, 4096), 512, 2, **NONE, **{
        "training.mixed_precision_param": "float32"})),
}


def cpu_seconds(words):
    """CPU time of a program and its threads, which other load on the machine changes little."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(words, check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def own(binary, few=4, many=12):
    print("| model | planned, s | measured, s | error |\n|---|---|---|---|")
    for what, settings in OWN.items():
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            (folder / "text.txt").write_text("The quick brown fox jumps over the lazy dog.\n" * 20000)
            (folder / "run.toml").write_text("")
            values = {"data.tokenizer": "bytes", "data.streams": 8, "device.threads": 1,
                      "training.dataset_path": folder / "text.txt", **settings}
            words = [folder / "run.toml"] + [f"{k}={v}" for k, v in values.items()]
            planned = min(json.loads(subprocess.run(
                [binary, "plan", "--json"] + words, check=True, capture_output=True,
                text=True).stdout)["step_seconds"] for _ in range(5))
            took = [cpu_seconds([binary, "train"] + words + [
                f"training.steps={steps}", f"job.dump_folder={folder}/{steps}"])
                    for steps in (few, many)]
        step = (took[1] - took[0]) / (many - few)
        print(f"| {what} | {planned:.3g} | {step:.3g} | {100 * (planned / step - 1):+.0f} % |")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--binary", default=ROOT / "build/llamero")
    parser.add_argument("--fit", action="store_true")
    parser.add_argument("--own", action="store_true")
    args = parser.parse_args()
    if args.fit:
        fit(args.binary)
    elif args.own:
        own(args.binary)
    else:
        table(args.binary, BF16_ROWS)
        table(args.binary, FP8_ROWS)


main()
