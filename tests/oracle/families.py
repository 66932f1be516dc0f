#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares random small models of each family with Transformers and llama.cpp.

    python tests/oracle/families.py PROGRAM [--family NAME]... [--count N] [--first N] [--gguf N]

For each family of FAMILIES and each of N random configurations (default 60), Transformers builds a model
with random weights and saves it.  Checked in float32, to a relative 1e-5:

- `PROGRAM eval` of that folder: the loss;
- `PROGRAM train` from it: the loss of 20 steps of AdamW, and the weights after the last; the gradient
  norms to 1e-3, since those of torch in float32 and in float64 differ by up to 2e-4 (granite 51), and
  biases to 1e-4, since gradients of those of keys are mostly rounding errors;
- the checkpoint of that run, opened by Transformers: its class, and its loss.

For the first N of them (--gguf, default all) also `PROGRAM generate`, and llama.cpp with the file that
`PROGRAM convert --to gguf` writes: 60 greedy tokens must be those of Transformers, up to one at which its two
best logits are within 1e-4.  Those that convert refuses are counted by its reason; dynamic RoPE,
and longrope that changes within the text, are left out.

Requires torch, transformers, numpy and safetensors; for --gguf xllamacpp.  Written for torch 2.15.0,
transformers 5.24.0 and xllamacpp 2026.10.11549.
"""
import argparse
import collections
import json
import math
import pathlib
import random
import re
import shutil
import subprocess
import tempfile
import urllib.request

import numpy
import safetensors.torch
import torch
import transformers

TOKENIZER = "tests/tokenizer/data/small.json"
VOCAB, END, STEPS, ROWS, GREEDY = 1000, 998, 20, 2, 60
# eps: with 1e-8 AdamW turns rounding errors of gradients near zero into whole steps.
ADAMW = dict(lr=1e-3, betas=(0.9, 0.95), eps=1e-5, weight_decay=0.1)


FUSED = {"qkv_proj": ["q_proj", "k_proj", "v_proj"], "gate_up_proj": ["gate_proj", "up_proj"]}


def sizes(r):
    """Settings that all families have."""
    kv_heads, head = r.choice([1, 2, 3]), r.choice([4, 6, 8, 12, 16])
    heads = kv_heads * r.choice([1, 2, 3])
    positions = rope(r)
    return dict(
        vocab_size=VOCAB, hidden_size=heads * r.randint(16 // heads + 1, 40 // heads + 1),
        intermediate_size=r.choice([20, 32, 52]), num_hidden_layers=r.randint(1, 4),
        num_attention_heads=heads, num_key_value_heads=kv_heads,
        head_dim=head, 
        max_position_embeddings=16 if positions["rope_type"] == "dynamic" else r.choice([96, 128]),
        rms_norm_eps=r.choice([1e-5, 1e-6]), tie_word_embeddings=r.random() < 0.5,
        rope_parameters=positions, initializer_range=0.2, bos_token_id=None, eos_token_id=None,
        attn_implementation="eager")


def rope(r):
    """Wavelengths are on both sides of each limit."""
    kind = r.choice(["default", "default", "llama3", "linear", "dynamic", "yarn"])
    rope = dict(rope_type=kind, rope_theta=r.choice([100.0, 10000.0, 500000.0]))
    if kind != "default":
        rope.update(factor=r.choice([1.0, 2.5, 8.0]))
    if kind == "llama3":
        rope.update(low_freq_factor=r.choice([0.5, 1.0]), high_freq_factor=r.choice([2.0, 4.0]))
    if kind == "yarn":
        rope.update(r.choice([{}, dict(beta_fast=4.0, beta_slow=0.5), dict(attention_factor=0.8),
                              dict(mscale=0.7, mscale_all_dim=1.3)]))
    if kind in ("llama3", "yarn"):
        rope.update(original_max_position_embeddings=r.choice([16, 64]))
    return rope


def llama(r):
    return dict(sizes(r), attention_bias=r.random() < 0.5, mlp_bias=r.random() < 0.5)


def qwen2(r):
    """Qwen2 has no head_dim: it is hidden_size / heads, here even."""
    s = sizes(r)
    head = s.pop("head_dim")
    return dict(s, hidden_size=s["num_attention_heads"] * head, use_sliding_window=False)


def mistral(r):
    """Windows shorter than the rows; without one it is saved as a Llama, if that allows its width."""
    s = sizes(r)
    s["hidden_size"] += r.choice([0, 0, 2])
    return dict(s, sliding_window=r.choice([None, None, 1, 3, 8, 16]))


def qwen3(r):
    return dict(sizes(r), attention_bias=r.random() < 0.3, use_sliding_window=False)


def granite(r):
    return dict(llama(r), embedding_multiplier=r.choice([1.0, 3.0, 12.0]),
                attention_multiplier=r.choice([1.0, 0.25, 0.0078125]),
                residual_multiplier=r.choice([1.0, 0.22]), logits_scaling=r.choice([1.0, 8.0]))


def smollm3(r):
    s = dict(llama(r), pad_token_id=None, use_sliding_window=False,
             no_rope_layer_interval=r.choice([2, 4, 4, 4]))
    return dict(s, num_hidden_layers=r.randint(4, 6))


def olmo2(r):
    s = dict(sizes(r), attention_bias=r.random() < 0.3, pad_token_id=None)
    if r.random() < 0.7:  # llama.cpp requires it
        s["hidden_size"] = s["num_attention_heads"] * s["head_dim"]
    return s


def phi3(r):
    """Rotates a part of each head, or has LongRoPE; else it is saved as a Llama or a Mistral."""
    s = dict(sizes(r), max_position_embeddings=r.choice([96, 128]), pad_token_id=None,
             sliding_window=r.choice([None, None, 1, 3, 16]))
    head = s["head_dim"]
    pairs = r.randint(1, head // 2)
    part = min((2 * pairs + r.choice([0.25, 0.5])) / head, 1.0)  # rounded down
    rope = dict(rope_type=r.choice(["default", "longrope"]), partial_rotary_factor=part,
                rope_theta=s["rope_parameters"]["rope_theta"])
    if rope["rope_type"] == "longrope":
        rope.update(r.choice([{}, {}, dict(factor=4.0), dict(attention_factor=1.3)]))
        rope.update({key: [round(r.uniform(1, 4), 3) for _ in range(pairs)]
                     for key in ("short_factor", "long_factor")})
    if r.random() < 0.7 or rope["rope_type"] == "longrope":  # llama.cpp requires it
        s["hidden_size"] = s["num_attention_heads"] * head
    return dict(s, rope_parameters=rope, original_max_position_embeddings=r.choice([8, 16, 64, 512]))


# Each family: the class of its configuration, and its random settings.
FAMILIES = {
    "llama": (transformers.LlamaConfig, llama),
    "granite": (transformers.GraniteConfig, granite),
    "smollm3": (transformers.SmolLM3Config, smollm3),
    "qwen2": (transformers.Qwen2Config, qwen2),
    "qwen3": (transformers.Qwen3Config, qwen3),
    "mistral": (transformers.MistralConfig, mistral),
    "olmo2": (transformers.Olmo2Config, olmo2),
    "phi3": (transformers.Phi3Config, phi3),
}


def options(c):
    """The [model] settings of a run that computes what Transformers does with this configuration."""
    rope = c.rope_parameters
    has = {key: value for key, value in rope.items() if value is not None}
    scaling = {"rope_" + key: has[key] for key in (
        "factor", "low_freq_factor", "high_freq_factor", "beta_fast", "beta_slow",
        "attention_factor", "short_factor", "long_factor") if key in has}
    if rope["rope_type"] == "longrope":
        scaling["max_context"] = c.max_position_embeddings
    if "mscale" in has:
        scaling["rope_attention_factor"] = (
            (1 + 0.1 * has["mscale"] * math.log(has["factor"])) /
            (1 + 0.1 * has["mscale_all_dim"] * math.log(has["factor"])))
    if rope["rope_type"] == "dynamic":
        scaling["rope_original_context"] = c.max_position_embeddings
    elif "original_max_position_embeddings" in has:
        scaling["rope_original_context"] = has["original_max_position_embeddings"]
    extra = {key: getattr(c, key) for key in (
        "embedding_multiplier", "attention_multiplier", "residual_multiplier", "logits_scaling")
        if hasattr(c, key)}
    if c.model_type == "smollm3" and c.no_rope_layer_interval <= c.num_hidden_layers:
        extra["no_rope_layer_interval"] = c.no_rope_layer_interval
    return {
        **extra, "dim": c.hidden_size, "n_layers": c.num_hidden_layers, "n_heads": c.num_attention_heads,
        "n_kv_heads": c.num_key_value_heads,
        "head_dim": getattr(c, "head_dim", c.hidden_size // c.num_attention_heads),
        "sliding_window": c.sliding_window or 0 if c.model_type in ("mistral", "phi3") else 0,
        "partial_rotary_factor": 0 if (rope.get("partial_rotary_factor") or 1) == 1 else
                                 rope["partial_rotary_factor"],
        "qk_norm": str(c.model_type == "qwen3").lower(),
        "post_norm": str(c.model_type == "olmo2").lower(),
        "attention_bias": "qkv" if c.model_type == "qwen2" else
                          "all" if getattr(c, "attention_bias", False) else "none",
        "mlp_bias": str(getattr(c, "mlp_bias", False)).lower(),
        "ffn_hidden": c.intermediate_size, "vocab_size": c.vocab_size,
        "rope_theta": rope["rope_theta"], **scaling,
        "rope_scaling": "none" if rope["rope_type"] == "default" else rope["rope_type"],
        "norm_eps": c.rms_norm_eps, "tie_embeddings": str(c.tie_word_embeddings).lower()}


def build(family, number):
    kind, settings = FAMILIES[family]
    config = kind(**settings(random.Random(f"{family} {number}")))
    torch.manual_seed(number)
    model = transformers.AutoModelForCausalLM.from_config(config).float()
    with torch.no_grad():
        for w in model.parameters():
            if w.dim() == 1:
                w.add_(0.2 * torch.randn_like(w))
        model.get_output_embeddings().weight[END] *= 0.1  # greedy texts do not end early
    return model.eval()


def loss_of(model, rows):
    logits = model(input_ids=rows[:, :-1], use_cache=False).logits
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten())


def run(*arguments):
    done = subprocess.run([str(a) for a in arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


class Worst:
    """The largest relative difference of each kind of comparison."""

    def __init__(self):
        self.of = {}

    def check(self, what, got, want, limit=1e-5):
        off = abs(got / want - 1)
        self.of[what] = max(self.of.get(what, 0), off)
        assert off < limit, f"{what}: {got} instead of {want}, a difference of {off:.1e}"


def check_eval(program, model, rows, folder, worst):
    with torch.no_grad():
        want = loss_of(model, rows).item()
    got = json.loads(run(program, "eval", folder / "hf", folder / "ids.npy", "--json", "--seq-len",
                         rows.shape[1] - 1, "training.mixed_precision_param=float32",
                         "data.bos=false", "data.eos=false"))
    assert got["tokens"] == rows[:, 1:].numel()
    worst.check("loss", got["loss"], want)


def saved_weight(saved, name):
    """Phi-3's fused matrices are saved as a Llama's if the model is one."""
    if name in saved:
        return saved[name]
    fused, parts = next((f, p) for f, p in FUSED.items() if f in name)
    return torch.cat([saved[name.replace(fused, part)] for part in parts])


def check_training(program, model, rows, folder, worst):
    (folder / "run.toml").write_text("")
    tokens = rows.shape[1] - 1
    run(program, "train", folder / "run.toml", "--quiet", *(
        f"model.{key}={value}" for key, value in options(model.config).items()), *f"""
        checkpoint.initial_load_path={folder}/hf training.dataset_path={folder}/ids.npy
        data.tokenizer={TOKENIZER} data.bos=false data.eos=false data.streams=1
        data.shuffle_window=1 training.mixed_precision_param=float32 training.seq_len={tokens}
        training.steps={STEPS} training.local_batch_size=1 training.global_batch_size={ROWS}
        optimizer.lr={ADAMW['lr']} optimizer.eps={ADAMW['eps']}
        lr_scheduler.warmup_steps=0 lr_scheduler.decay_ratio=0
        metrics.log_freq=1 checkpoint.enable=true checkpoint.interval={STEPS}
        job.dump_folder={folder}/run""".split())
    steps = [line for line in map(json.loads, (folder / "run/metrics.jsonl").open())
             if "grad_norm" in line]
    assert len(steps) == STEPS
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), **ADAMW)
    for i, got in enumerate(steps):
        optimizer.zero_grad()
        loss = loss_of(model, rows[i * ROWS:(i + 1) * ROWS])
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0).item()
        optimizer.step()
        worst.check("loss of a step", got["loss"], loss.item())
        worst.check("gradient norm", got["grad_norm"], norm, limit=1e-3)
    model.eval()
    checkpoint = folder / f"run/checkpoint/step-{STEPS}"
    saved = {}
    for name in checkpoint.glob("model*.safetensors"):
        saved.update(safetensors.torch.load_file(name))
    for name, w in model.named_parameters():
        off = ((saved_weight(saved, name) - w).norm() / w.norm()).item()
        if name.endswith(".bias"):
            worst.check("biases", 1 + off, 1, limit=1e-4)
        else:
            worst.check("weights after the last step", 1 + off, 1)
    return checkpoint


def check_export(model, rows, checkpoint, worst):
    exported = transformers.AutoModelForCausalLM.from_pretrained(
        checkpoint, dtype=torch.float32, attn_implementation="eager").eval()
    kind = type(model)
    # A Phi-3 that rotates whole heads is a Mistral, which without a window is a Llama.
    rope = model.config.rope_parameters
    is_whole = rope["rope_type"] == "default" and rope.get("partial_rotary_factor", 1) == 1
    if model.config.model_type == "phi3" and is_whole:
        kind = transformers.MistralForCausalLM
    divides = model.config.hidden_size % model.config.num_attention_heads == 0
    if kind is transformers.MistralForCausalLM and not model.config.sliding_window and divides:
        kind = transformers.LlamaForCausalLM
    assert type(exported) is kind, type(exported)
    with torch.no_grad():
        worst.check("loss of the checkpoint in Transformers", loss_of(exported, rows).item(),
                    loss_of(model, rows).item())


def greedy(model, ids, count):
    """The most likely tokens until END, and the number of them before the first near-tie."""
    out, clear = [], None
    with torch.no_grad():
        for _ in range(count):
            logits = model(input_ids=torch.tensor([ids + out]), use_cache=False).logits[0, -1]
            first, second = logits.topk(2).values.tolist()
            if clear is None and first - second < 1e-4:
                clear = len(out)
            if int(logits.argmax()) == END:
                break
            out.append(int(logits.argmax()))
    return out, len(out) if clear is None else clear


def same_tokens(got, want, clear):
    """Whether all are the same; they must be before the first near-tie."""
    assert got[:clear] == want[:clear], (got, want)
    return got == want


def post(server, path, **body):
    request = urllib.request.Request(server.listening_address + path, json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    return json.load(urllib.request.urlopen(request))


def generated_by_llama_cpp(path, ids, count):
    import xllamacpp
    params = xllamacpp.CommonParams()
    params.model.path = str(path)
    params.n_ctx, params.warmup, params.n_gpu_layers = 256, False, 0
    params.cpuparams.n_threads = 1
    params.cache_type_k = params.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
    params.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    server = xllamacpp.Server(params)
    return post(server, "/completion", prompt=ids, n_predict=count, temperature=0, top_k=1,
                return_tokens=True, ignore_eos=False, cache_prompt=False)["tokens"]


def refusal(message):
    """The reason in convert's message, without its figures."""
    reason = re.split("[:;] |, (?=which|as |but )", message.strip().split("/hf", 1)[1].lstrip(": "))[0]
    return re.sub(r"\b\d[\d.]*", "N", reason)


def check_generation(program, model, folder):
    """What became of the comparison with llama.cpp."""
    text = "the quick brown fox"
    ids = [int(word) for word in run(program, "tokenizer", "encode", "--tokenizer", TOKENIZER,
                                     text).split()]
    want, clear = greedy(model, ids, GREEDY)
    out = json.loads(run(program, "generate", folder / "hf", "--prompt", text, "--temperature", 0,
                         "--max-tokens", GREEDY, "--json", "data.bos=false",
                         "training.mixed_precision_param=float32"))
    same_tokens(out["ids"], want, clear)
    path = folder / "model.gguf"
    done = subprocess.run([program, "convert", folder / "hf", path, "--to", "gguf"],
                          capture_output=True, text=True)
    if "llama.cpp" in done.stderr and done.returncode:
        return "refused: " + refusal(done.stderr)
    assert done.returncode == 0, done.stderr
    got = generated_by_llama_cpp(path, ids, GREEDY)
    return "equal" if same_tokens(got, want, clear) else "equal up to a near-tie"


def check(program, family, number, worst, with_gguf):
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        model = build(family, number)
        model.save_pretrained(folder / "hf")
        shutil.copy(TOKENIZER, folder / "hf/tokenizer.json")
        tokens = random.Random(number).randint(5, 40)
        generator = torch.Generator().manual_seed(number)
        ids = torch.randint(0, VOCAB, (STEPS * ROWS * tokens + 1,), generator=generator)
        numpy.save(folder / "ids.npy", ids.numpy().astype("<i4"))
        rows = ids.unfold(0, tokens + 1, tokens)  # each begins with the last label of the one before
        check_eval(program, model, rows, folder, worst)
        # Transformers' dynamic RoPE rotates each prefix of a generated text differently, and so does
        # longrope if the text outgrows the original context.
        rope = model.config.rope_parameters
        is_dynamic = rope["rope_type"] == "dynamic" or (
            rope["rope_type"] == "longrope" and rope["original_max_position_embeddings"] in (16, 64))
        in_llama_cpp = "left out: " + rope["rope_type"]
        if not with_gguf:
            in_llama_cpp = None
        elif not is_dynamic:
            in_llama_cpp = check_generation(program, model, folder)
        checkpoint = check_training(program, model, rows, folder, worst)
        check_export(model, rows, checkpoint, worst)
        return in_llama_cpp


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--family", action="append", choices=FAMILIES)
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--gguf", type=int, default=1000)
    a = parser.parse_args()
    for family in a.family or FAMILIES:
        worst, in_llama_cpp = Worst(), collections.Counter()
        for number in range(a.first, a.first + a.count):
            try:
                in_llama_cpp[check(a.program, family, number, worst, number - a.first < a.gguf)] += 1
            except AssertionError as e:
                raise AssertionError(f"{family} {number}: {build(family, number).config}: {e}") from None
        print(f"{family}: {a.count} configurations,", ", ".join(
            f"{what} {off:.1e}" for what, off in worst.of.items()) +
              "; tokens of llama.cpp:", ", ".join(
                  f"{count} {what}" for what, count in in_llama_cpp.most_common() if what), flush=True)
    print("torch", torch.__version__, "transformers", transformers.__version__)


if __name__ == "__main__":
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    main()
