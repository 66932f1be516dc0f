#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Loads what `convert --to dcp --generation` writes with the torchtitan of each generation, from its
own sources, and converts with its own scripts.

    python tests/oracle/dcp_generations.py check PROGRAM CHECKOUTS
    python tests/oracle/dcp_generations.py keys tests/checkpoint/data/dcp-generations CHECKOUTS

pip install torch torchdata numpy tyro tomli

CHECKOUTS is a folder with unpacked sources, of which each that exists is used:
    frontier-torchtitan, torchtitan-mlm, gpt-neuro, gpt-neuro-arch   (github.com/eminorhan)
    torchtitan-v0.1.0, torchtitan-v0.2.0, ..., torchtitan-new        (github.com/pytorch/torchtitan)

check: for each of them, its model, ModelWrapper, optimizer wrapper or OptimizersContainer, lr_scheduler,
data loader and train_state load a directory strictly, with its own planner, and then hold the run's
weights, moments, step and counters; a tied model's too.  What they save in turn, `PROGRAM convert` reads.
The forks' dcp_to_llama.py and llama_to_dcp.py run in both directions.

keys: writes what each generation saves of a tiny model: key, and the tensor's dtype and shape or the
object's type.

torchtitan-new requires a nightly torch, so its model is stood in for by modules with the names of its
models/llama3/model.py and models/common/; its ModelWrapper and its optimizer utilities are its own.
"""
import functools
import importlib.abc
import importlib.machinery
import importlib.util
import io
import json
import os
import pickle
import subprocess
import sys
import tempfile
import types

import torch
import torch.distributed.checkpoint as dcp

from dcp_state import hf_name, hf_rows

SHAPE = dict(vocab=37, dim=16, layers=2, heads=4, kv_heads=2, hidden=24, seq_len=8)
STEP, TOKENS = 4, 4 * 2 * 8
GENERATION = {  # checkout: generation, commit
    "frontier-torchtitan": ("frontier", "50284af"), "torchtitan-mlm": ("frontier", "c83c949"),
    "gpt-neuro": ("frontier", "3584696"), "gpt-neuro-arch": ("frontier", "3ff76c3"),
    "torchtitan-v0.1.0": ("v0.1", "v0.1.0"), "torchtitan-v0.2.0": ("v0.2", "v0.2.0"),
    "torchtitan-v0.2.1": ("v0.2", "v0.2.1"), "torchtitan-v0.2.2": ("v0.2", "v0.2.2"),
    "torchtitan-new": ("new", "b5bcd76c6")}
# Needed to import the files above, not to load a checkpoint.
ABSENT = ("flash_attn", "torch.nn.attention.varlen", "torch.utils.tensorboard")
# Modules of torch that lack functions which later versions have.
LACKING = ("torch.distributed.pipelining.schedules", "torch._higher_order_ops",
           "torch.distributed.tensor.experimental._attention")


class Absent(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path, target=None):
        if any(name == x or name.startswith(x + ".") for x in ABSENT):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec):
        module = types.ModuleType(spec.name)
        module.__path__ = []
        module.__getattr__ = self.attribute
        return module

    @staticmethod
    def attribute(key):
        if key.startswith("__"):
            raise AttributeError(key)
        return lambda *arguments, **named: None

    def exec_module(self, module):
        pass


def args_of(cls):
    """The model's arguments; ffn is rounded up to 24."""
    return cls(dim=SHAPE["dim"], n_layers=SHAPE["layers"], n_heads=SHAPE["heads"],
               n_kv_heads=SHAPE["kv_heads"], vocab_size=SHAPE["vocab"], multiple_of=24,
               ffn_dim_multiplier=0.5, max_seq_len=SHAPE["seq_len"])


def adamw(parameters, fused=False):
    return torch.optim.AdamW(parameters, lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1, fused=fused,
                             foreach=not fused)


class Rows(torch.utils.data.IterableDataset):
    def __iter__(self):
        return iter(torch.arange(8))


class Frontier:
    """A checkpoint of the forks: what train.py passes to CheckpointManager, and how that loads."""

    def __init__(self, checkout, tied):
        from torchtitan.checkpoint import ModelWrapper, OptimizerWrapper, TrainState
        from torchtitan.models.llama.model import ModelArgs, Transformer
        from torchtitan.optimizer import linear_warmup_linear_decay
        from torchdata.stateful_dataloader import StatefulDataLoader
        from torch.distributed.checkpoint.stateful import Stateful
        self.strict = "torchtitan-mlm" in checkout
        self.model = Transformer.from_model_args(args_of(ModelArgs))
        self.optimizer = adamw(self.model.parameters())
        self.schedule = torch.optim.lr_scheduler.LambdaLR(
            self.optimizer, lr_lambda=functools.partial(linear_warmup_linear_decay, 2, 8.0))
        self.train = TrainState()

        class Loader(StatefulDataLoader, Stateful):  # as DPAwareDataLoader of rank 1
            def state_dict(self):
                return {"dp_rank_1": pickle.dumps(super().state_dict())}

            def load_state_dict(self, state):
                super().load_state_dict(pickle.loads(state["dp_rank_1"]))

        self.loader = Loader(Rows(), 1)
        self.states = {"train_state": self.train, "model": ModelWrapper(self.model),
                       "optimizer": OptimizerWrapper(self.model, self.optimizer),
                       "dataloader": self.loader, "lr_scheduler": self.schedule}

    def save(self, folder):
        dcp.save(dict(self.states), checkpoint_id=folder, no_dist=True)

    def load(self, folder, step):
        states = {"model": self.states["model"]} if step == 0 else dict(self.states)
        planner = dcp.DefaultLoadPlanner(allow_partial_load=not self.strict)
        missing = self.missing(states, folder)
        assert not [x for x in missing if self.strict or not x.startswith("dataloader.")], missing
        dcp.load(states, checkpoint_id=folder, planner=planner, no_dist=True)

    @staticmethod
    def missing(states, folder):
        """Keys that are missing, although a planner may allow that."""
        plain = {k: v.state_dict() if hasattr(v, "state_dict") else v for k, v in states.items()}
        keys, _ = torch.distributed.checkpoint._nested_dict.flatten_state_dict(plain)
        return keys.keys() - dcp.FileSystemReader(folder).read_metadata().state_dict_metadata.keys()

    def counters(self):
        lists = self.train.global_avg_losses, self.train.global_max_losses, self.train.log_steps
        return self.train.step, TOKENS, lists == ([], [], [])

    def set_counters(self):
        self.train.step = STEP


class Trainer:
    """train.py's part of the train_state."""

    def __init__(self, has_tokens):
        self.step, self.ntokens_seen, self.has_tokens = 0, 0, has_tokens

    def state_dict(self):
        return {"step": self.step} | ({"ntokens_seen": self.ntokens_seen} if self.has_tokens else {})

    def load_state_dict(self, state):
        self.step = state["step"]
        self.ntokens_seen = state["ntokens_seen"] if self.has_tokens else TOKENS


class Titan(Frontier):
    """torchtitan v0.1 and v0.2."""

    def __init__(self, checkout, tied):
        from torchtitan.components.checkpoint import ModelWrapper
        from torchtitan.components.dataloader import ParallelAwareDataloader
        from torchtitan.components.lr_scheduler import LRSchedulersContainer
        from torchtitan.components.optimizer import OptimizersContainer
        from torchtitan.models.llama3.model.args import TransformerModelArgs
        from torchtitan.models.llama3.model.model import Transformer
        self.flattens = "v0.1" not in checkout
        self.model = Transformer(args_of(TransformerModelArgs))
        self.optimizers = OptimizersContainer([self.model], torch.optim.AdamW, dict(
            lr=1e-3, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1, fused=False, foreach=True))
        self.optimizer = self.optimizers.optimizers[0]
        self.schedulers = LRSchedulersContainer(self.optimizers, functools.partial(lambda step: 1.0))
        self.schedule = self.schedulers.schedulers[0]
        self.loader = ParallelAwareDataloader(Rows(), dp_rank=1, dp_world_size=2, batch_size=1)
        self.train = Trainer(self.flattens)
        self.states = {"train_state": self.train, "model": ModelWrapper(self.model),
                       "optimizer": self.optimizers, "dataloader": self.loader,
                       "lr_scheduler": self.schedulers}

    def flat(self):
        states = {k: v for k, v in self.states.items() if k != "model"}
        return states | self.states["model"].state_dict()

    def save(self, folder):
        dcp.save(self.flat() if self.flattens else dict(self.states), checkpoint_id=folder,
                 no_dist=True)

    def load(self, folder, step):
        model = self.states["model"]
        if step == 0:
            states = dict(model.state_dict())
            states.pop("freqs_cis", None)
        else:
            states = self.flat() if self.flattens else dict(self.states)
        states = {k: v for k, v in states.items() if k not in self.excluded()}
        dcp.load(states, checkpoint_id=folder, no_dist=True)
        if self.flattens or step == 0:
            model.load_state_dict(states)

    def excluded(self):
        return ()

    def counters(self):
        ints = type(self.train.step) is int and type(self.train.ntokens_seen) is int
        return self.train.step, self.train.ntokens_seen, ints

    def set_counters(self):
        self.train.step, self.train.ntokens_seen = STEP, TOKENS


def own_file(checkout, path, **stubs):
    """A module of the checkout, with stubs for the rest of torchtitan."""
    for name, value in stubs.items():
        module = types.ModuleType("torchtitan." + name.replace("__", "."))
        for key in value:
            setattr(module, key, value[key])
        sys.modules[module.__name__] = module
    sys.modules.setdefault("torchtitan", types.ModuleType("torchtitan"))
    spec = importlib.util.spec_from_file_location("own_" + os.path.basename(path)[:-3],
                                                  os.path.join(checkout, path))
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class New(Titan):
    """torchtitan after v0.2.2."""

    def __init__(self, checkout, tied):
        class Configurable:
            class Config:
                pass
        base = own_file(checkout, "torchtitan/components/checkpointer/base.py",
                        config=dict(Configurable=Configurable),
                        tools=dict(filesystem=None), tools__logging=dict(logger=None))
        flat = own_file(checkout, "torchtitan/components/optimizer/utils.py")
        self.flattens, self.model = True, new_model(tied)
        named = list(self.model.named_parameters())
        groups = [dict(params=[p for _, p in named], param_names=[n for n, _ in named])]
        optimizer = self.optimizer = adamw(groups)
        schedule = self.schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0)

        class Optimizers:
            def state_dict(self):
                flat.init_optim_state(optimizer)
                return flat.get_flat_optim_state_dict(optimizer)

            def load_state_dict(self, state):
                flat.init_optim_state(optimizer)
                flat.load_flat_optim_state_dict(optimizer, state)

        class Schedulers:
            def state_dict(self):
                return {"last_epoch": schedule.last_epoch}

            def load_state_dict(self, state):
                schedule.last_epoch = state["last_epoch"]

        self.train = Trainer(True)
        self.states = {"train_state": self.train, "model": base.ModelWrapper(self.model),
                       "optimizer": Optimizers(), "lr_scheduler": Schedulers()}


def new_model(tied):
    module, linear = torch.nn.Module, functools.partial(torch.nn.Linear, bias=False)
    dim, head, norm = SHAPE["dim"], SHAPE["dim"] // SHAPE["heads"], functools.partial(torch.nn.RMSNorm, SHAPE["dim"])
    model = module()
    model.tok_embeddings = torch.nn.Embedding(SHAPE["vocab"], dim)
    model.layers = torch.nn.ModuleDict()
    for i in range(SHAPE["layers"]):
        block = model.layers[str(i)] = module()
        block.attention, block.feed_forward = module(), module()
        qkv = block.attention.qkv_linear = module()
        qkv.wq, qkv.wk = linear(dim, dim), linear(dim, SHAPE["kv_heads"] * head)
        qkv.wv, block.attention.wo = linear(dim, SHAPE["kv_heads"] * head), linear(dim, dim)
        block.feed_forward.w1 = linear(dim, SHAPE["hidden"])
        block.feed_forward.w2 = linear(SHAPE["hidden"], dim)
        block.feed_forward.w3 = linear(dim, SHAPE["hidden"])
        block.attention_norm, block.ffn_norm = norm(), norm()
    model.norm, model.lm_head = norm(), linear(dim, SHAPE["vocab"])
    if tied:
        model.tok_embeddings.weight = model.lm_head.weight
    return model


KINDS = {"frontier": Frontier, "v0.1": Titan, "v0.2": Titan, "new": New}


def open_run(checkout, tied=False):
    sys.meta_path.insert(0, Absent())
    torch.compile = lambda function=None, **options: function  # with options of a newer torch
    for name in LACKING:
        importlib.import_module(name).__getattr__ = Absent.attribute
    if not hasattr(torch.ops.torch_attn, "_varlen_attn"):
        torch.ops.torch_attn._varlen_attn = types.SimpleNamespace(default=None)
    sys.path.insert(0, checkout)
    os.chdir(checkout)
    torch.manual_seed(1)
    return KINDS[GENERATION[os.path.basename(checkout)][0]](checkout, tied)


def fill(run):
    """Random weights and moments of step STEP."""
    for p in run.model.parameters():
        p.grad = torch.randn_like(p)
    for _ in range(STEP):
        run.optimizer.step()
        run.schedule.step()
        for p in run.model.parameters():
            p.grad = torch.randn_like(p)
    run.set_counters()


def tensors(run):
    """Weights, moments and steps, with the names of v0.2 and without "model."."""
    out = {}
    for name, p in run.model.named_parameters(remove_duplicate=False):
        name = name.replace("qkv_linear.", "").replace("lm_head", "output")
        out[name] = p.detach().clone()
        for part, t in run.optimizer.state.get(p, {}).items():
            out[f"{name}.{part}"] = t.clone()
    return out


def form(value):
    if isinstance(value, torch.Tensor):
        return f"{str(value.dtype)[6:]} {json.dumps(list(value.shape))}"
    return type(value).__name__


def list_keys(checkout, path):
    run = open_run(checkout)
    fill(run)
    states = run.flat() if getattr(run, "flattens", False) else run.states
    plain = {k: v.state_dict() if hasattr(v, "state_dict") else v for k, v in states.items()}
    keys, _ = torch.distributed.checkpoint._nested_dict.flatten_state_dict(plain)
    generation, commit = GENERATION[os.path.basename(checkout)]
    with open(path, "w") as f:
        f.write(f"# {generation}: a run's keys, as {os.path.basename(checkout)} {commit} saves them with "
                f"torch {torch.__version__.split('+')[0]}\n")
        for key, value in sorted(keys.items()):
            f.write(f"{key} {form(value)}\n")


def load(checkout, folder, step, tied, answer):
    """Loads a directory into a run that has other values, and saves it again."""
    run = open_run(checkout, tied)
    fill(run)
    run.train.step, run.train.ntokens_seen = 1, 1
    if step:
        run.load(folder, step)
    else:
        run.optimizer.state.clear()
        run.load(folder, 0)
    table = getattr(run.model, "freqs_cis", None)
    result = {"tensors": tensors(run)}
    if step:
        group = run.optimizer.param_groups[0]
        result |= {"counters": run.counters(), "epoch": run.schedule.last_epoch,
                   "group": [group["lr"], *group["betas"], group["eps"], group["weight_decay"]]}
        if table is not None and "v0.1" in checkout:
            own = run.model._precompute_freqs_cis()
            result["table"] = (table - own).abs().max().item()
        run.save(answer + ".dcp")
    torch.save(result, answer)


def save(checkout, folder):
    run = open_run(checkout)
    fill(run)
    run.save(folder)
    torch.save(tensors(run), folder + ".pt")


def child(job, *arguments):
    done = subprocess.run([sys.executable, "-B", os.path.abspath(__file__), "--" + job,
                           *map(str, arguments)], capture_output=True, text=True)
    assert done.returncode == 0, (job, arguments, done.stderr[-3000:])


def run_program(*arguments):
    done = subprocess.run(arguments, capture_output=True, text=True)
    assert done.returncode == 0, (arguments, done.stderr)
    return done.stdout, done.stderr


def script(checkout, name, *arguments):
    # torchtitan-mlm's dcp_to_llama.py is older than torch 2.6, whose torch.load rejects the BytesIO of
    # a run's train_state by default, also in the fork's own checkpoints.
    env = os.environ | {"PYTHONPATH": checkout, "PYTHONDONTWRITEBYTECODE": "1",
                        "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD": "1"}
    done = subprocess.run([sys.executable, name, *arguments], capture_output=True, text=True,
                          cwd=checkout, env=env)
    assert done.returncode == 0, (name, done.stderr[-3000:])


def hf_tensors(folder):
    import safetensors.torch
    out = {}
    for file in os.listdir(folder):
        if file.endswith(".safetensors"):
            out |= safetensors.torch.load_file(os.path.join(folder, file))
    return out


def hf_names(state):
    """Names and rows of Hugging Face, of tensors()."""
    out = {}
    for name, w in state.items():
        if name.endswith(".step"):
            continue
        out[hf_name(name)] = hf_rows(SHAPE, name, w)
    return out


def equal(what, have, want):
    assert have.keys() == want.keys(), (what, have.keys() ^ want.keys())
    bad = [k for k in want if have[k].dtype != want[k].dtype or not torch.equal(have[k], want[k])]
    assert not bad, (what, bad)
    print(f"{what}: {len(want)} tensors equal")


TOML = """[[data.source]]
path = "{corpus}"
[data]
tokenizer = "bytes"
streams = 1
[model]
name = "{name}"
dim = {dim}
n_layers = {layers}
n_heads = {heads}
n_kv_heads = {kv_heads}
ffn_hidden = {hidden}
vocab_size = 259
rope_theta = 10000.0
rope_scaling = "none"
tie_embeddings = {tied}
[training]
seq_len = {seq_len}
local_batch_size = 2
steps = {steps}
[optimizer]
lr = 0.01
[checkpoint]
enable = true
interval = 1000
"""


def params_json(folder):
    with open(os.path.join(folder, "params.json"), "w") as f:
        json.dump(dict(dim=SHAPE["dim"], n_layers=SHAPE["layers"], n_heads=SHAPE["heads"],
                       n_kv_heads=SHAPE["kv_heads"], vocab_size=SHAPE["vocab"], multiple_of=24,
                       ffn_dim_multiplier=0.5, norm_eps=1e-5, rope_theta=10000.0), f)


def check_out(program, checkout, path, dump, tied):
    """A run of ours goes to the checkout and back."""
    name = os.path.basename(checkout)
    generation = GENERATION[name][0]
    what = f"{name}{', tied' if tied else ''}"
    loader = ["--dp-size", "2"] if generation != "new" else []
    run_program(program, "convert", dump, path("run"), "--to", "dcp", "--generation", generation, *loader)
    child("load", checkout, path("run"), STEP, int(tied), path("run.pt"))
    got = torch.load(path("run.pt"), weights_only=True)
    want = hf_tensors(os.path.join(dump, "checkpoint", f"step-{STEP}"))
    if tied:
        parts = [""] if generation == "new" else ["", ".exp_avg", ".exp_avg_sq"]
        want |= {"lm_head.weight" + x: want["model.embed_tokens.weight" + x] for x in parts}
        if generation == "new":
            got["tensors"] = {k: v for k, v in got["tensors"].items() if not k.startswith("output.weight.")}
    steps = {v.item() for k, v in got["tensors"].items() if k.endswith(".step")}
    assert steps == {STEP} and got["counters"] == (STEP, TOKENS, True) and got["epoch"] == STEP, got
    assert abs(got["group"][1] - 0.9) + abs(got["group"][2] - 0.95) + abs(got["group"][4] - 0.1) < 1e-12, got
    assert got.get("table", 0) < 1e-6, got
    equal(f"{what} loads a run of ours", hf_names(got["tensors"]), want)
    with open(path("run.pt.dcp", "config.json"), "w") as f, open(path("run", "config.json")) as g:
        f.write(g.read())
    run_program(program, "convert", path("run.pt.dcp"), path("back"), "--to", "native")
    back = os.path.join(path("back"), "checkpoint", f"step-{STEP}")
    equal(f"{what} saves it, and llamero reads that", hf_tensors(back),
          {k: v for k, v in want.items() if not (tied and k.startswith("lm_head"))})
    run_program(program, "convert", dump, path("model"), "--to", "dcp", "--generation", generation,
                "--model-only")
    child("load", checkout, path("model"), 0, int(tied), path("model.pt"))
    got = torch.load(path("model.pt"), weights_only=True)["tensors"]
    equal(f"{what} loads the model as step-0", hf_names(got),
          {k: v for k, v in want.items() if k.endswith("weight")})


def check_in(program, checkout, path):
    """A run of the checkout comes to us, and keeps its step."""
    child("save", checkout, path("theirs"))
    params_json(path("theirs"))
    run_program(program, "convert", path("theirs"), path("ours"), "--to", "native")
    step = path("ours", "checkpoint", f"step-{STEP}")
    equal(f"{os.path.basename(checkout)}'s own run", hf_tensors(step),
          hf_names(torch.load(path("theirs.pt"), weights_only=True)))
    with open(os.path.join(step, "state.json")) as f:
        assert json.load(f)["step"] == STEP


SIZES = (("dim=4096", "dim=16"), ("n_layers=32", "n_layers=2"), ("n_heads=32", "n_heads=4"),
         ("n_kv_heads=8", "n_kv_heads=2"), ("multiplier=1.3", "multiplier=0.5"),
         ("multiple_of=1024", "multiple_of=24"), ("vocab_size=256", "vocab_size=259"))


def check_scripts(program, checkout, path, dump):
    """The forks' dcp_to_llama.py and llama_to_dcp.py, on what we write."""
    name, want = os.path.basename(checkout), hf_tensors(os.path.join(dump, "checkpoint", f"step-{STEP}"))
    want = {k: v for k, v in want.items() if k.endswith("weight")}
    os.makedirs(path("llama"))
    with open(os.path.join(checkout, "dcp_to_llama.py")) as f, open(path("dcp_to_llama.py"), "w") as g:
        text = f.read()
        for old, new in SIZES:  # gpt-neuro's script states the sizes of its 8B
            text = text.replace(old, new)
        g.write(text)
    script(checkout, path("dcp_to_llama.py"), "--input_dir", path("run"), "--output_dir", path("llama"))
    run_program(program, "convert", dump, path("meta"), "--to", "meta")
    with open(path("llama", "params.json"), "w") as f, open(path("meta", "params.json")) as g:
        f.write(g.read())
    run_program(program, "convert", path("llama"), path("llama-hf"), "--to", "hf")
    equal(f"{name}'s dcp_to_llama.py on a run of ours", hf_tensors(path("llama-hf")), want)
    script(checkout, "llama_to_dcp.py", "--input_dir", path("meta"), "--output_dir", path("from-llama"))
    with open(path("from-llama", "config.json"), "w") as f, open(path("run", "config.json")) as g:
        f.write(g.read())
    without = []
    if name.startswith("gpt-neuro"):  # its script leaves out embedding and head
        want = {k: v for k, v in want.items() if "embed_tokens" not in k and "lm_head" not in k}
        without = ["--without-io"]
    run_program(program, "convert", path("from-llama"), path("from-llama-hf"), "--to", "hf", *without)
    equal(f"{name}'s llama_to_dcp.py on our .pth", hf_tensors(path("from-llama-hf")), want)


def check(program, checkouts):
    program = os.path.abspath(program)
    with tempfile.TemporaryDirectory() as root:
        corpus = os.path.join(root, "corpus.jsonl")
        with open(corpus, "w") as f:
            f.write(json.dumps(dict(text="a b c d " * 400)) + "\n")
        dumps = {}
        for tied in (False, True):
            toml, dumps[tied] = os.path.join(root, f"{tied}.toml"), os.path.join(root, f"ours-{tied}")
            with open(toml, "w") as f:
                f.write(TOML.format(corpus=corpus, name="llama3", tied=str(tied).lower(), steps=STEP, **SHAPE))
            run_program(program, "train", toml, f"job.dump_folder={dumps[tied]}")
        for name in GENERATION:
            checkout = os.path.join(os.path.abspath(checkouts), name)
            if not os.path.isdir(checkout):
                print(f"{name}: no checkout, skipped")
                continue
            for tied in (False, True):
                with tempfile.TemporaryDirectory() as folder:
                    path = lambda *parts: os.path.join(folder, *parts)
                    check_out(program, checkout, path, dumps[tied], tied)
                    if not tied:
                        check_in(program, checkout, path)
                        if GENERATION[name][0] == "frontier":
                            check_scripts(program, checkout, path, dumps[tied])
    print("torch", torch.__version__)


def keys(folder, checkouts):
    os.makedirs(folder, exist_ok=True)
    for name in ("torchtitan-mlm", "torchtitan-v0.1.0", "torchtitan-v0.2.2", "torchtitan-new"):
        child("list_keys", os.path.join(os.path.abspath(checkouts), name),
              os.path.join(os.path.abspath(folder), GENERATION[name][0] + ".txt"))


if __name__ == "__main__":
    torch.set_num_threads(1)
    job, rest = sys.argv[1], sys.argv[2:]
    if job == "--load":
        SHAPE["vocab"] = 259  # of the run's byte tokenizer
        load(rest[0], rest[1], int(rest[2]), rest[3] == "1", rest[4])
    elif job == "--save":
        save(*rest)
    elif job == "--list_keys":
        list_keys(*rest)
    else:
        {"check": check, "keys": keys}[job](*rest)
