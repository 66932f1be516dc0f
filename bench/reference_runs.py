#!/usr/bin/env python3
"""The reference runs: planned at full size, and trained scaled-down in several parallel layouts.

    tools/mini_data && python tools/neural_pile.py neural       # data of the small runs
    python3 bench/reference_runs.py [--binary build/llamero] [--only NAME ...] [--steps N] > tables

Full size: memory and step time of `plan` versus published figures.  Scaled down: the loss of each layout; a run
that is stopped half way and resumed versus an uninterrupted one; and the checkpoint exported to the format that
the run's users load.  If PyTorch is installed it loads the export and must reproduce the loss of `eval` (text
models) or find bit-identical tensors.  docs/reference-runs.md has the tables and explains them.
"""
# SPDX-License-Identifier: Apache-2.0
import argparse
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

TP, PP, CP = (f"parallelism.{n}_parallel_degree" for n in ("tensor", "pipeline", "context"))
REPLICATE, SHARD = (f"parallelism.data_parallel_{n}_degree" for n in ("replicate", "shard"))
SHARD_GRADIENTS = {"parallelism.fsdp_shard_gradients": "true"}

FULL = [  # configuration, ranks, device, its GiB, published seconds per step, source
    ("mlm-1b-n64", 512, "mi250x", 64, 12.0, "about 300 steps an hour"),
    ("llama3.1-8b-fsdp", 512, "mi250x", 64, 95.0, "95 s for 16.8 million tokens"),
    ("neural-8b-131k", 512, "mi250x", 64, None, "nothing published"),
    ("llama3-70b-tp32pp8", 512, "trn1", 16, 321.89, "NxD Training's log, 16 nodes"),
    ("llama3-70b-cp", 512, "trn1", 16, None, "nothing published"),
    ("llama2-7b", 8, "mi300x", 192, None, "nothing published for one node in bf16"),
    ("llama3-8b-fp8", 8, "mi300x", 192, 128 * 8192 / 8 / 6500, "at least 6500 tokens/s per GPU"),
]
MINI = [  # configuration; layouts: name, ranks, settings; format of the export
    ("mlm-1b-mini", [("one rank", 1, {}),
                     ("HSDP 2 x 2", 4, {REPLICATE: 2, SHARD: 2}),
                     ("FSDP 2 x TP 2", 4, {SHARD: 2, TP: 2})], "dcp"),
    ("llama3.1-8b-mini", [("one rank", 1, {}), ("FSDP 2", 2, {}), ("FSDP 4", 4, {})], "hf"),
    ("neural-mini", [("one rank", 1, {}), ("TP 2", 2, {TP: 2}),
                     ("TP 2 x CP 2", 4, {TP: 2, CP: 2})], "dcp"),
    ("llama3-70b-mini", [("one rank", 1, {}),
                         ("TP 2 x PP 2, ZeRO-1", 4, {TP: 2, PP: 2}),
                         ("TP 4, KV heads on two ranks each", 4, {TP: 4}),
                         ("TP 2 x CP 2", 4, {TP: 2, CP: 2})], "hf"),
    ("llama2-7b-mini", [("one rank", 1, {}), ("ZeRO-1 of 4", 4, {}), ("FSDP 4", 4, SHARD_GRADIENTS),
                        ("TP 2 x ZeRO-1 of 2", 4, {TP: 2})], "hf"),
    ("llama3-8b-fp8-mini", [("one rank", 1, {}), ("ZeRO-1 of 2", 2, {}), ("TP 2", 2, {TP: 2})],
     "hf"),
]


META = [("tok_embeddings", "embed_tokens"), ("output.", "lm_head."),
        ("attention_norm", "input_layernorm"), ("ffn_norm", "post_attention_layernorm"),
        ("qkv_linear.", ""), ("attention.w", "self_attn.w"),
        ("feed_forward.w1", "mlp.gate_proj"), ("feed_forward.w2", "mlp.down_proj"),
        ("feed_forward.w3", "mlp.up_proj"), *((f".w{x}.", f".{x}_proj.") for x in "qkvo")]


def words(settings):
    return [f"{key}={value}" for key, value in settings.items()]


class Runs:
    def __init__(self, arguments):
        self.binary = os.path.abspath(arguments.binary)
        self.folder = pathlib.Path(arguments.folder).absolute()
        self.more = [f"training.steps={arguments.steps}"] if arguments.steps else []

    def call(self, *arguments, ranks=1):
        launch = ["mpirun", "--oversubscribe", "-n", str(ranks)] if ranks > 1 else []
        done = subprocess.run([*launch, self.binary, *map(str, arguments)], text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        if done.returncode:
            command = " ".join(map(str, arguments))
            sys.exit(f"{command}: exit code {done.returncode}\n{done.stderr[-2000:]}")
        return done.stdout

    def train(self, config, dump, ranks, settings):
        """Losses by step, validation losses by step, seconds."""
        begin = time.monotonic()
        self.call("train", f"configs/{config}.toml", f"job.dump_folder={dump}", *self.more,
                  *words(settings), ranks=ranks)
        lines = [json.loads(line) for line in open(dump / "metrics.jsonl")]
        return ({each["step"]: each["loss"] for each in lines if "loss" in each},
                {each["step"]: each["validation_loss"] for each in lines
                 if "validation_loss" in each}, time.monotonic() - begin)


def plan_full(runs, only):
    print("| run | device | ranks | GiB per device | of | planned s/step | published | error | "
          "bottleneck |")
    print("|---|---|---|---|---|---|---|---|---|")
    for config, ranks, device, memory, published, source in FULL:
        if only and config not in only:
            continue
        plan = json.loads(runs.call("plan", f"configs/{config}.toml", "--ranks", ranks, "--json",
                                    "data.tokenizer=", f"device.hardware={device}",
                                    *(["model.vocab_size=128256"] if "llama3" in config or
                                      "mlm" in config else [])))
        gib = max(rank["total"] for rank in plan["ranks"]) / 2**30
        seconds = plan["step_seconds"]
        error = f"{100 * (seconds / published - 1):+.0f} %" if published else "-"
        print(f"| {config} | {device} | {ranks} | {gib:.1f} | {memory} | {seconds:.1f} | "
              f"{f'{published:.1f}' if published else '-'} ({source}) | {error} | "
              f"{plan['estimate']['limit']} |", flush=True)


def resume(runs, config, dump, uninterrupted):
    """Trains half of the steps, then the rest; True if all losses equal those of the uninterrupted run."""
    last = max(uninterrupted)
    text = open(f"configs/{config}.toml").read()
    full = {"lr_scheduler.total_steps": last}
    if 'order = "megatron"' in text:  # its order depends on the number of samples
        full["data.samples"] = last * int(re.search(r"global_batch_size = (\d+)", text)[1])
    runs.train(config, dump, 1, {**full, "training.steps": last // 2})
    losses, _, _ = runs.train(config, dump, 1, {**full, "training.steps": last})
    later = [step for step in uninterrupted if step > last // 2]
    return later and all(losses[step] == uninterrupted[step] for step in later)


def hf_name(name):
    """The Hugging Face name of a tensor with Meta's name."""
    for meta, theirs in META:
        name = name.replace(meta, theirs)
    return f"model.{name}" if not name.startswith("lm_head") else name


def loaded_by_torch(runs, dump, form):
    """Loads the exported checkpoint with PyTorch and compares it; returns a cell of the table."""
    try:
        import torch
    except ImportError:
        return "PyTorch is not installed"
    out = dump.parent / f"{dump.name}-{form}"
    shutil.rmtree(out, ignore_errors=True)
    checkpoint = max((dump / "checkpoint").glob("step-*"), key=lambda p: int(p.name[5:]))
    runs.call("convert", checkpoint, out, "--to", form, "--model-only")
    if form == "dcp":
        import safetensors.torch
        from torch.distributed.checkpoint.format_utils import dcp_to_torch_save
        dcp_to_torch_save(out, str(out) + ".pth")
        exported = torch.load(str(out) + ".pth", weights_only=True)
        saved = {}
        for part in checkpoint.glob("model-*.safetensors"):
            saved.update(safetensors.torch.load_file(part))
        for name, got in exported.items():
            expected = saved.pop(hf_name(name))
            if ".wq." in name or ".wk." in name:  # the formats order the rows of q and k differently
                got, expected = got.flatten().sort().values, expected.flatten().sort().values
            if not torch.equal(got, expected):
                sys.exit(f"{out}: {name} differs from {checkpoint}")
        if saved:
            sys.exit(f"{out}: missing {', '.join(saved)}")
        return f"`dcp_to_torch_save`: {len(exported)} tensors, bit-identical"
    import transformers
    model = transformers.AutoModelForCausalLM.from_pretrained(out, dtype=torch.float32).eval()
    text = next(open("mini/held-out.jsonl"))
    one = dump.parent / "one.jsonl"
    one.write_text(text)
    ids = [int(i) for i in runs.call("tokenizer", "encode", "--tokenizer", "mini/tokenizer.json",
                                     json.loads(text)["text"]).split()]
    special = json.load(open("mini/tokenizer.json"))["added_tokens"]
    begin, end = (next(t["id"] for t in special if t["content"] == f"<|{which}_of_text|>")
                  for which in ("begin", "end"))
    ids = torch.tensor([[begin, *ids, end]])
    with torch.no_grad():
        logits = model(input_ids=ids[:, :-1]).logits[0]
    expected = torch.nn.functional.cross_entropy(logits.double(), ids[0, 1:]).item()
    got = json.loads(runs.call("eval", out, one, "--json", "--seq-len", 128, "--tokenizer",
                               "mini/tokenizer.json", "training.mixed_precision_param=float32"))
    difference = abs(got["loss"] / expected - 1)
    if difference > 1e-4 or got["tokens"] != ids.shape[1] - 1:
        sys.exit(f"{out}: eval has loss {got['loss']} over {got['tokens']} tokens, Transformers {expected}")
    return f"Transformers: loss {expected:.5f}, `eval` differs by {difference:.0e}"


def train_mini(runs, only, most):
    print("\n| run | layout | ranks | loss | validation | deviation | minutes |")
    print("|---|---|---|---|---|---|---|")
    notes = []
    for config, layouts, form in MINI:
        if only and config not in only or not os.path.exists(f"configs/{config}.toml"):
            continue
        first = None
        for name, ranks, settings in layouts[:most]:
            dump = runs.folder / f"{config}-{name.replace(' ', '').replace(',', '-')}"
            shutil.rmtree(dump, ignore_errors=True)
            losses, held_out, seconds = runs.train(config, dump, ranks, settings)
            loss = losses[max(losses)]
            validation = f"{held_out[max(held_out)]:.4f}" if held_out else "-"
            first = first or (dump, losses)
            deviation = max(abs(losses[s] / first[1][s] - 1) for s in losses)
            print(f"| {config} | {name} | {ranks} | {loss:.4f} | {validation} | {deviation:.1e} | "
                  f"{seconds / 60:.1f} |", flush=True)
        half = runs.folder / f"{config}-resumed"
        shutil.rmtree(half, ignore_errors=True)
        same = resume(runs, config, half, first[1])
        resumed = "the same losses, bit for bit" if same else "DIFFERENT LOSSES"
        notes.append(f"| {config} | {resumed} | {loaded_by_torch(runs, first[0], form)} |")
    print("\n| run | stopped half way and resumed | exported and loaded |\n|---|---|---|")
    print("\n".join(notes))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--binary", default="build/llamero")
    parser.add_argument("--folder", default="outputs/reference-runs")
    parser.add_argument("--only", nargs="*", help="configurations to run (default: all)")
    parser.add_argument("--layouts", type=int, help="maximum number of layouts per configuration")
    parser.add_argument("--steps", type=int, help="steps of the small runs (default: those of the configuration)")
    arguments = parser.parse_args()
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")
    runs = Runs(arguments)
    runs.folder.mkdir(parents=True, exist_ok=True)
    plan_full(runs, arguments.only)
    train_mini(runs, arguments.only, arguments.layouts)


if __name__ == "__main__":
    main()
