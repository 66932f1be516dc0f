#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Resumes PyTorch runs in llamero and llamero runs in PyTorch, through directories of
torch.distributed.checkpoint with AdamW state, schedule and counters.

    python tests/oracle/dcp_state.py check PROGRAM
    python tests/oracle/dcp_state.py fixture tests/checkpoint/data/dcp-state

check: 4 ranks (gloo) train a tiny Llama under FSDP2 and save it with torchtitan's names of every
generation; `PROGRAM train` resumes from it, directly and after `PROGRAM convert`, and must have the losses
of torch's next steps.  torch, loading as torchtitan does, must load what `PROGRAM convert --to dcp` writes
of a llamero run bit for bit, and continue with llamero's losses.  As a control, moments of q and k in
the wrong row order must give different losses.

fixture: writes a small directory of 2 ranks, and some of its moments in Hugging Face's row order.
"""
import functools
import io
import json
import os
import pickle
import random
import shutil
import subprocess
import sys
import tempfile

import safetensors.torch
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.multiprocessing
import torch.nn.functional as F
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions, get_model_state_dict, get_optimizer_state_dict, set_model_state_dict,
    set_optimizer_state_dict)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

RANKS, ROWS, TOKENS, BEFORE, AFTER, STEPS, WARMUP = 4, 4, 16, 6, 4, 30, 3
TINY = dict(vocab=259, dim=16, layers=2, heads=4, kv_heads=2, hidden=24)
ADAMW = dict(lr=1e-2, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)
FLAT = StateDictOptions(flatten_optimizer_state_dict=True)
GENERATIONS = {
    "2024": [],  # with the prefix "model.", except in the optimizer's state
    "2025": [],
    "2026": [("attention.w", "attention.qkv_linear.w"), ("qkv_linear.wo", "wo"),
             ("output.", "lm_head.")],
}


def newer(generation, key):
    if generation == "2024" and not key.startswith(("state.", "param_groups.")):
        return "model." + key
    for old, new in GENERATIONS[generation]:
        key = key.replace(old, new)
    return key


class Block(torch.nn.Module):
    def __init__(self, c):
        super().__init__()
        linear = functools.partial(torch.nn.Linear, bias=False)
        head = c["dim"] // c["heads"]
        self.c, self.attention, self.feed_forward = c, torch.nn.Module(), torch.nn.Module()
        self.attention.wq = linear(c["dim"], c["dim"])
        self.attention.wk = linear(c["dim"], c["kv_heads"] * head)
        self.attention.wv = linear(c["dim"], c["kv_heads"] * head)
        self.attention.wo = linear(c["dim"], c["dim"])
        self.feed_forward.w1 = linear(c["dim"], c["hidden"])
        self.feed_forward.w2 = linear(c["hidden"], c["dim"])
        self.feed_forward.w3 = linear(c["dim"], c["hidden"])
        self.attention_norm = torch.nn.RMSNorm(c["dim"], eps=1e-5)
        self.ffn_norm = torch.nn.RMSNorm(c["dim"], eps=1e-5)

    def forward(self, x):
        (B, T, D), H, G = x.shape, self.c["heads"], self.c["kv_heads"]
        K, a, f = D // H, self.attention, self.feed_forward
        turn = torch.outer(torch.arange(T), 10000.0 ** (-torch.arange(0, K, 2) / K))
        turn = torch.polar(torch.ones_like(turn), turn)[:, None]

        def rotate(x):  # pairs of adjacent elements
            return torch.view_as_real(torch.view_as_complex(x.unflatten(-1, (-1, 2))) * turn).flatten(-2)

        h = self.attention_norm(x)
        q, k = rotate(a.wq(h).view(B, T, H, K)), rotate(a.wk(h).view(B, T, G, K))
        q, k, v = (y.transpose(1, 2) for y in (q, k, a.wv(h).view(B, T, G, K)))
        h = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        x = x + a.wo(h.transpose(1, 2).flatten(-2))
        h = self.ffn_norm(x)
        return x + f.w2(F.silu(f.w1(h)) * f.w3(h))


class Llama(torch.nn.Module):
    def __init__(self, c):
        super().__init__()
        self.tok_embeddings = torch.nn.Embedding(c["vocab"], c["dim"])
        self.layers = torch.nn.ModuleDict({str(i): Block(c) for i in range(c["layers"])})
        self.norm = torch.nn.RMSNorm(c["dim"], eps=1e-5)
        self.output = torch.nn.Linear(c["dim"], c["vocab"], bias=False)

    def forward(self, ids):
        x = self.tok_embeddings(ids)
        for block in self.layers.values():
            x = block(x)
        return self.output(self.norm(x))


def factor(s):
    """torchtitan's default: warmup, then linear to 0."""
    if s < WARMUP:
        return (s + 1) / WARMUP
    return 1 - min(1, (s + 1 - (STEPS + 1 - (STEPS - WARMUP))) / (STEPS - WARMUP))


class Session:
    """One rank that trains and saves as torchtitan does."""

    def __init__(self, ranks, c):
        torch.manual_seed(5)
        self.ranks, self.c = ranks, c
        self.model = Llama(c)
        with torch.no_grad():
            for w in self.model.parameters():
                w.add_(0.1 * torch.randn_like(w))
        mesh = init_device_mesh("cpu", (ranks,))
        for block in self.model.layers.values():
            fully_shard(block, mesh=mesh)
        fully_shard(self.model, mesh=mesh)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), **ADAMW)
        self.schedule = torch.optim.lr_scheduler.LambdaLR(self.optimizer, functools.partial(factor))
        self.steps = self.tokens = 0

    def train(self, text, first, steps):
        """Trains from row `first` of the text; returns the losses."""
        losses, each = [], ROWS // self.ranks
        for _ in range(steps):
            own = range(first + dist.get_rank() * each, first + (dist.get_rank() + 1) * each)
            rows = torch.tensor([list(text[r * TOKENS:(r + 1) * TOKENS + 1]) for r in own])
            first += ROWS
            self.optimizer.zero_grad()
            logits = self.model(rows[:, :-1])
            loss = F.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten())
            loss.backward()
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimizer.step()
            self.schedule.step()
            self.steps, self.tokens = self.steps + 1, self.tokens + ROWS * TOKENS
            loss = loss.detach()
            dist.all_reduce(loss)
            losses.append(loss.item() / self.ranks)
        return losses

    def state(self, generation):
        name = functools.partial(newer, generation)
        optimizer = get_optimizer_state_dict(self.model, self.optimizer, options=FLAT)
        train = {"step": torch.tensor(self.steps, dtype=torch.int32),
                 "ntokens_seen": torch.tensor(self.tokens, dtype=torch.int64)}
        if generation == "2024":
            losses = io.BytesIO()
            torch.save([5.0] * self.steps, losses)
            train = {"step": train["step"], "global_avg_losses": losses}
        if generation == "2026":
            train = {"step": self.steps, "ntokens_seen": self.tokens}
        return {**{name(k): v for k, v in get_model_state_dict(self.model).items()},
                "optimizer": {name(k): v for k, v in optimizer.items()},
                "lr_scheduler": self.schedule.state_dict(),
                "train_state": train}

    def save(self, folder, generation):
        more = {"dataloader": {"dp_rank_0": pickle.dumps({"inner": 3}), "world_size": self.ranks}}
        dcp.save(self.state(generation) | more, checkpoint_id=folder)

    def load(self, folder, generation):
        state = self.state(generation)
        dcp.load(state, checkpoint_id=folder)
        old = lambda keys: {newer(generation, k): k for k in keys}
        names = old(get_model_state_dict(self.model))
        set_model_state_dict(self.model, {names[k]: state[k] for k in names})
        names = old(get_optimizer_state_dict(self.model, self.optimizer, options=FLAT))
        set_optimizer_state_dict(self.model, self.optimizer,
                                 {names[k]: state["optimizer"][k] for k in names}, options=FLAT)
        self.schedule.load_state_dict(state["lr_scheduler"])
        self.steps = int(state["train_state"]["step"])
        self.tokens = int(state["train_state"]["ntokens_seen"])

    def whole(self):
        """All weights and moments with Hugging Face's names and row order."""
        out, weights = {}, dict(self.model.named_parameters())
        for name, w in weights.items():
            moments = self.optimizer.state[w]
            for part, t in (("", w), (".exp_avg", moments["exp_avg"]),
                            (".exp_avg_sq", moments["exp_avg_sq"])):
                out[hf_name(name) + part] = hf_rows(self.c, name, t.detach().full_tensor())
        return out


def hf_name(name):
    for theirs, own in (("tok_embeddings", "model.embed_tokens"), ("layers.", "model.layers."),
                        ("attention.w", "self_attn.w"), ("wq", "q_proj"), ("wk", "k_proj"),
                        ("wv", "v_proj"), ("wo", "o_proj"), ("feed_forward.", "mlp."),
                        ("w1", "gate_proj"), ("w2", "down_proj"), ("w3", "up_proj"),
                        ("attention_norm", "input_layernorm"), ("output.", "lm_head."),
                        ("ffn_norm", "post_attention_layernorm")):
        name = name.replace(theirs, own)
    return name.replace("norm.weight", "model.norm.weight") if name.startswith("norm") else name


def hf_rows(c, name, w):
    if "attention.wq" not in name and "attention.wk" not in name:
        return w
    heads = c["heads"] if "wq" in name else c["kv_heads"]
    return w.view(heads, w.shape[0] // heads // 2, 2, -1).transpose(1, 2).reshape(w.shape)


def work(rank, ranks, port, job, answer, *arguments):
    torch.set_num_threads(1)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank),
                      WORLD_SIZE=str(ranks))
    dist.init_process_group("gloo", rank=rank, world_size=ranks)
    result = globals()[job](ranks, *arguments)
    if not rank:
        torch.save(result, answer)
    dist.barrier()  # wait for all ranks before leaving the group
    dist.destroy_process_group()


PORT = 29700


def spawn(ranks, job, *arguments):
    global PORT
    PORT += 1
    with tempfile.NamedTemporaryFile() as answer:
        torch.multiprocessing.spawn(work, (ranks, PORT, job, answer.name, *arguments), nprocs=ranks)
        return torch.load(answer.name, weights_only=True)


def begin(ranks, folders, text):
    """Trains, saves with the names of each generation, and continues from the start of the text."""
    s = Session(ranks, TINY)
    s.train(text, 0, BEFORE)
    for generation, folder in folders.items():
        s.save(folder, generation)
    want = s.train(text, 0, AFTER)
    s = Session(ranks, TINY)
    s.load(folders["2025"], "2025")
    with torch.no_grad():  # the control: treat rows as if in Hugging Face's order
        for name, w in s.model.named_parameters():
            for part in ("exp_avg", "exp_avg_sq"):
                m = s.optimizer.state[w][part]
                whole = hf_rows(TINY, name, m.full_tensor())
                m.copy_(torch.distributed.tensor.distribute_tensor(whole, m.device_mesh, m.placements))
    return want, s.train(text, 0, AFTER)


def go_on(ranks, folder, text, first):
    s = Session(ranks, TINY)
    s.load(folder, "2026")
    counts = [s.steps, s.tokens, s.schedule.last_epoch]
    return s.whole(), counts, s.train(text, first, AFTER)


def settings(path, corpus):
    with open(path, "w") as f:
        f.write(f"""[[data.source]]
path = "{corpus}"
[data]
tokenizer = "bytes"
streams = 1
shuffle_window = 1
bos = false
eos = false
[model]
dim = {TINY["dim"]}
n_layers = {TINY["layers"]}
n_heads = {TINY["heads"]}
n_kv_heads = {TINY["kv_heads"]}
ffn_hidden = {TINY["hidden"]}
vocab_size = {TINY["vocab"]}
rope_theta = 10000.0
rope_scaling = "none"
[training]
seq_len = {TOKENS}
local_batch_size = {ROWS}
mixed_precision_param = "float32"
[optimizer]
lr = {ADAMW["lr"]}
[lr_scheduler]
warmup_steps = {WARMUP}
total_steps = {STEPS}
[metrics]
log_freq = 1
[checkpoint]
enable = true
interval = 1000
""")
    return path


def run(program, *arguments):
    done = subprocess.run([program, *arguments], capture_output=True, text=True)
    assert done.returncode == 0, (arguments, done.stderr)
    return done.stderr


def losses_of(dump):
    with open(os.path.join(dump, "metrics.jsonl")) as f:
        lines = [json.loads(line) for line in f]
    return {x["step"]: x["loss"] for x in lines if "loss" in x}


def check_losses(what, have, want):
    off = max(abs(a - b) for a, b in zip(have, want, strict=True))
    print(f"{what}: {' '.join(f'{x:.6f}' for x in have)}, difference {off:.1e}")
    assert off < 1e-5, (what, have, want)


def check_theirs(program, path, toml, text):
    folders = {g: path(g, "checkpoint", f"step-{BEFORE}") for g in GENERATIONS}
    want, wrong = spawn(RANKS, "begin", folders, text)
    print("torch:", want)
    assert abs(want[0] - wrong[0]) < 1e-6 < 1e-4 < abs(want[-1] - wrong[-1]), (want, wrong)
    last = f"training.steps={BEFORE + AFTER}"
    steps = range(BEFORE + 1, BEFORE + AFTER + 1)
    params = dict(dim=TINY["dim"], n_layers=TINY["layers"], n_heads=TINY["heads"], vocab_size=-1,
                  n_kv_heads=TINY["kv_heads"], multiple_of=8, norm_eps=1e-5, rope_theta=10000.0)
    for generation, folder in folders.items():
        with open(path(generation, "params.json"), "w") as f:
            json.dump(params, f)
        dump = path(generation + "-direct")
        run(program, "train", toml, f"job.dump_folder={dump}", last,
            f"checkpoint.initial_load_path={folder}", "checkpoint.initial_load_model_only=false")
        have = losses_of(dump)
        assert sorted(have) == list(steps), have
        check_losses(f"{generation}, initial_load_path", [have[s] for s in steps], want)
        dump = path(generation + "-converted")
        run(program, "convert", folder, dump, "--to", "native")
        run(program, "train", toml, f"job.dump_folder={dump}", last)
        have = losses_of(dump)
        check_losses(f"{generation}, convert --to native", [have[s] for s in steps], want)


def check_ours(program, path, toml, text):
    dump, folder = path("ours"), path("ours-dcp")
    run(program, "train", toml, f"job.dump_folder={dump}", f"training.steps={BEFORE}")
    run(program, "convert", dump, folder, "--to", "dcp", "--generation", "new")
    step = os.path.join(dump, "checkpoint", f"step-{BEFORE}")
    want = {}
    for file in os.listdir(step):
        if file.endswith(".safetensors"):
            want |= safetensors.torch.load_file(os.path.join(step, file))
    have, counts, losses = spawn(RANKS, "go_on", folder, text, BEFORE * ROWS)
    assert counts == [BEFORE, BEFORE * ROWS * TOKENS, BEFORE], counts
    assert have.keys() == want.keys(), have.keys() ^ want.keys()
    bad = [k for k in want if not torch.equal(have[k], want[k])]
    assert not bad, bad
    print(f"ours, as torch loads it: {len(want)} tensors equal")
    dcp_to_torch_save(folder, path("ours.pt"))
    saved = torch.load(path("ours.pt"), weights_only=True)
    name = "layers.0.attention.qkv_linear.wq.weight"
    part = hf_rows(TINY, "attention.wq", saved["optimizer"][f"state.{name}.exp_avg"])
    assert torch.equal(part, want["model.layers.0.self_attn.q_proj.weight.exp_avg"])
    assert saved["optimizer"][f"param_groups.{name}.betas"] == ADAMW["betas"]
    run(program, "train", toml, f"job.dump_folder={dump}",
        f"training.steps={BEFORE + AFTER}")
    own = losses_of(dump)
    check_losses("torch resumes from llamero", losses, [own[s] for s in range(BEFORE + 1, BEFORE + AFTER + 1)])


def check(program):
    with tempfile.TemporaryDirectory() as root:
        path = lambda *parts: os.path.join(root, *parts)
        letters = random.Random(3)
        text = "".join(letters.choice("abcdefgh ") for _ in range(8000))
        with open(path("corpus.jsonl"), "w") as f:
            f.write(json.dumps(dict(text=text)) + "\n")
        toml = settings(path("run.toml"), path("corpus.jsonl"))
        check_theirs(program, path, toml, text.encode())
        check_ours(program, path, toml, text.encode())
    print("torch", torch.__version__)


SMALL = dict(vocab=11, dim=8, layers=1, heads=2, kv_heads=1, hidden=8)


def small(ranks, folder):
    s = Session(ranks, SMALL)
    s.train(bytes(i * i % 11 for i in range(999)), 0, 3)
    state = s.state("2026")
    kept = "param_groups.lm_head.weight."  # one of several equal entries
    state["optimizer"] = {k: v for k, v in state["optimizer"].items()
                          if not k.startswith("param_groups.") or k.startswith(kept)}
    dcp.save(state | {"dataloader": {"dp_rank_0": b"x"}}, checkpoint_id=folder)
    return s.whole()


def fixture(folder):
    shutil.rmtree(folder, ignore_errors=True)
    whole = spawn(2, "small", folder)
    with open(os.path.join(folder, "params.json"), "w") as f:
        json.dump(dict(dim=8, n_layers=1, n_heads=2, n_kv_heads=1, vocab_size=11, multiple_of=8,
                       norm_eps=1e-5, rope_theta=10000.0), f)
        f.write("\n")
    answer = dict(script="tests/oracle/dcp_state.py", torch=torch.__version__, step=3,
                  tokens_seen=3 * ROWS * TOKENS)
    for name in ("model.layers.0.self_attn.q_proj.weight.exp_avg",
                 "model.layers.0.self_attn.k_proj.weight.exp_avg_sq", "model.norm.weight.exp_avg",
                 "lm_head.weight.exp_avg_sq", "model.layers.0.self_attn.q_proj.weight"):
        answer[name] = [float(f"{x:.9g}") for x in whole[name].flatten().tolist()]
    with open(os.path.join(folder, "expected.json"), "w") as f:
        f.write("{\n" + ",\n".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in answer.items()) + "\n}\n")


if __name__ == "__main__":
    torch.set_num_threads(1)
    fixture(sys.argv[2]) if sys.argv[1] == "fixture" else check(sys.argv[2])
