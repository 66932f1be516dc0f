#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Exchanges Hugging Face folders between Transformers and llamero.

    python tests/oracle/hf_folder.py check PROGRAM TEXT TESTS
    python tests/oracle/hf_folder.py fixture tests/checkpoint/data/tied

check: models that Transformers saves (several files; tied or not; llama3's RoPE scaling; bfloat16; Qwen3) must
have the same loss in `PROGRAM eval`, and `PROGRAM train` must start from them.  A checkpoint of `PROGRAM
train` must load in Transformers with the same loss, and have the same logits in the test runner TESTS
(build/tests/run).  All in float32; losses and logits must agree to 1e-4.

fixture: writes a small tied model in several files with its logits, for tests/checkpoint.
"""
import json
import math
import os
import subprocess
import sys
import tempfile

import torch
import transformers

VOCAB, BEGIN, END, TOKENS = 259, 256, 257, 96  # of the tokenizer "bytes"; TOKENS per row
SCALED = dict(rope_type="llama3", rope_theta=1000.0, factor=8.0, low_freq_factor=1.0,
              high_freq_factor=4.0, original_max_position_embeddings=32)
PLAIN = dict(rope_type="default", rope_theta=10000.0)
CASES = {
    "tied, scaled, grouped": dict(tied=True, rope=SCALED, kv_heads=2),
    "untied, plain": dict(tied=False, rope=PLAIN, kv_heads=4),
    "untied, scaled, grouped, bfloat16": dict(tied=False, rope=SCALED, kv_heads=1, half=True),
    "Qwen3, grouped": dict(tied=False, rope=PLAIN, kv_heads=2, qk_norm=True),
    "Qwen3, tied, scaled": dict(tied=True, rope=SCALED, kv_heads=2, qk_norm=True),
}


def make(tied, rope, kv_heads, half=False, qk_norm=False, width=64, hidden=96, layers=3):
    kind, model_kind = transformers.LlamaConfig, transformers.LlamaForCausalLM
    if qk_norm:
        kind, model_kind = transformers.Qwen3Config, transformers.Qwen3ForCausalLM
    config = kind(
        vocab_size=VOCAB, hidden_size=width, intermediate_size=hidden, num_hidden_layers=layers,
        num_attention_heads=4, num_key_value_heads=kv_heads, head_dim=width // 4,
        max_position_embeddings=256, rms_norm_eps=1e-5, rope_parameters=rope, tie_word_embeddings=tied, bos_token_id=BEGIN,
        eos_token_id=END, initializer_range=0.2, attn_implementation="eager")
    torch.manual_seed(7)
    model = model_kind(config).float()
    with torch.no_grad():
        for name, w in model.named_parameters():
            if w.dim() == 1:
                w.add_(0.2 * torch.randn_like(w))
    return model.bfloat16() if half else model


def rows_of(path):
    """The rows of eval: one document with BOS and EOS, in rows that overlap by one token."""
    ids = [BEGIN] + list(json.loads(open(path).readline())["text"].encode()) + [END]
    return [ids[at:at + TOKENS + 1] for at in range(0, len(ids) - 1, TOKENS)]


def loss_in_transformers(folder, rows):
    model = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager").eval()
    total = count = 0
    with torch.no_grad():
        for row in rows:
            ids = torch.tensor([row])
            logits = model(input_ids=ids[:, :-1], use_cache=False).logits[0]
            total += torch.nn.functional.cross_entropy(logits.double(), ids[0, 1:],
                                                       reduction="sum").item()
            count += len(row) - 1
    return total / count, count


def run(program, *arguments):
    return subprocess.run([program, *map(str, arguments)], check=True, stdout=subprocess.PIPE,
                          text=True).stdout


def loss_in_llamero(program, folder, data, *more):
    return json.loads(run(program, "eval", folder, data, "--json", "--seq-len", TOKENS,
                          "training.mixed_precision_param=float32", *more))


def compare(what, program, folder, data, *more):
    want, count = loss_in_transformers(folder, rows_of(data))
    got = loss_in_llamero(program, folder, data, *more)
    off = abs(got["loss"] / want - 1)
    print(f"{what}: loss {want:.7f}, in llamero {got['loss']:.7f}, difference {off:.1e}, "
          f"{count} tokens")
    assert got["tokens"] == count and off < 1e-4


def first_loss(dump):
    return json.loads(open(os.path.join(dump, "metrics.jsonl")).readline())["loss"]


def train_from(program, folder, case, dump, recipe):
    """Trains 3 steps from the weights of `folder`; RoPE scaling is configured by the run."""
    dims = dict(dim=64, n_layers=3, n_heads=4, n_kv_heads=case["kv_heads"], ffn_hidden=96,
                vocab_size=VOCAB, rope_theta=case["rope"]["rope_theta"],
                rope_scaling="none" if case["rope"] is PLAIN else "llama3", tie_embeddings=str(case["tied"]).lower(),
                qk_norm=str(case.get("qk_norm", False)).lower())
    run(program, "train", recipe, f"job.dump_folder={dump}", "training.steps=3", "metrics.log_freq=1",
        "training.mixed_precision_param=float32",
        f"checkpoint.initial_load_path={folder}", "--quiet",
        *(f"model.{k}={v}" for k, v in dims.items()))
    return os.path.join(dump, "checkpoint", "step-3")


def check(program, text, tests):
    with tempfile.TemporaryDirectory() as root:
        path = lambda *parts: os.path.join(root, *parts)
        data, recipe = path("one.jsonl"), path("tiny.toml")
        with open(data, "w") as f:
            f.write(json.dumps({"text": open(text).read()[:4000]}) + "\n")
        with open(recipe, "w") as f:
            f.write(run(program, "init", "tiny").replace('"text.txt"', json.dumps(text)))
        for number, (what, case) in enumerate(CASES.items()):
            folder = path(f"hf{number}")
            make(**case).save_pretrained(folder, max_shard_size="60KB")
            files = sum(name.endswith(".safetensors") for name in os.listdir(folder))
            compare(f"{what}, {files} files", program, folder, data, "--tokenizer", "bytes")
            dump = path(f"run{number}")
            step = train_from(program, folder, case, dump, recipe)
            initial, first = loss_in_transformers(folder, rows_of(data))[0], first_loss(dump)
            print(f"{what}: training starts at a loss of {first:.3f} ({initial:.3f} on the text)")
            # The rows differ, so the losses are only close; without scaling the function is the same.
            assert abs(first / initial - 1) < (0.1 if case["rope"] is PLAIN else 0.3)
            compare(f"{what}, 3 steps later", program, step, data)
        run(program, "train", recipe, f"job.dump_folder={path('tiny')}", "training.steps=60",
            "--quiet")
        ours = path("tiny", "checkpoint", "step-60")
        compare("trained by llamero, tiny recipe", program, ours, data)
        write_expected(ours, ours)
        out = subprocess.run([tests, "transformers_folder"], text=True, stdout=subprocess.PIPE,
                             stderr=subprocess.STDOUT, env=os.environ | {"LLAMERO_HF_FOLDER": ours})
        print("trained by llamero,", ", ".join(l for l in out.stdout.split("\n") if "logits differ" in l))
        assert out.returncode == 0, out.stdout
        assert math.isfinite(first_loss(path("tiny")))
    print("torch", torch.__version__, "transformers", transformers.__version__)


def fixture(folder):
    """A tied model in two files, with GQA and llama3's RoPE scaling; its logits for 40 IDs."""
    model = make(tied=True, rope=SCALED, kv_heads=2, width=32, hidden=40, layers=2).eval()
    model.save_pretrained(folder, max_shard_size="40KB")
    write_expected(folder, folder)


def write_expected(model_folder, folder):
    model = transformers.AutoModelForCausalLM.from_pretrained(
        model_folder, dtype=torch.float32, attn_implementation="eager").eval()
    ids = [(37 * i * i + 11 * i + 5) % VOCAB for i in range(40)]
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([ids]), use_cache=False).logits[0]
    answer = dict(script="tests/oracle/hf_folder.py", torch=torch.__version__,
                  transformers=transformers.__version__, ids=ids,
                  # the logits of every eighth position, over the vocabulary
                  places=list(range(7, 40, 8)),
                  logits=[[round(x, 6) for x in logits[p].tolist()] for p in range(7, 40, 8)])
    with open(os.path.join(folder, "expected.json"), "w") as f:
        f.write("{\n" + ",\n".join(f"{json.dumps(k)}: {json.dumps(v)}"
                                   for k, v in answer.items()) + "\n}\n")


if __name__ == "__main__":
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    if sys.argv[1] == "fixture":
        fixture(sys.argv[2])
    else:
        check(*sys.argv[2:])
