#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Exchanges torch.distributed.checkpoint (DCP) directories between PyTorch and llamero.

    python tests/oracle/dcp_folder.py check PROGRAM
    python tests/oracle/dcp_folder.py fixture tests/checkpoint/data/dcp

check: 4 ranks (gloo) save a model and its AdamW state, sharded by rows and by columns, with the names of
each generation of torchtitan; `PROGRAM convert` must restore the model bit for bit.  torch must load
what `PROGRAM convert --to dcp` writes of Transformers models, in one file and in several, bit for bit:
in one process, on two ranks sharded by rows, and with dcp_to_torch_save.

fixture: writes a small directory of 2 ranks with the model's logits.
"""
import json
import os
import shutil
import sys
import tempfile

import safetensors.torch
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.multiprocessing
import transformers
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor

from meta_folder import PLAIN, SCALED, equal, hf_model, ids_of, meta_state, params_json, run

GENERATIONS = {
    "2024": lambda name: "model." + name,
    "2025": lambda name: name,
    "2026": lambda name: name.replace("attention.w", "attention.qkv_linear.w")
                             .replace("qkv_linear.wo", "wo").replace("output.", "lm_head."),
}


def save(rank, ranks, state, folder, generation, optimizer, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank),
                      WORLD_SIZE=str(ranks))
    dist.init_process_group("gloo", rank=rank, world_size=ranks)
    mesh = init_device_mesh("cpu", (ranks,))

    # Shards w2 by columns, replicates some norms, and shards all other weights by rows.
    def distribute(name, w):
        placement = Replicate() if w.dim() == 1 and "ffn" in name else Shard(1 if w.dim() > 1 and "w2" in name else 0)
        return distribute_tensor(w, mesh, [placement])

    rename = GENERATIONS[generation]
    out = {rename(name): distribute(name, w) for name, w in state.items()}
    if optimizer:
        for name, w in state.items():
            for part in ("exp_avg", "exp_avg_sq"):
                out[f"optimizer.state.{rename(name)}.{part}"] = distribute(name, w * 0.5)
            out[f"optimizer.state.{rename(name)}.step"] = torch.tensor(7.0)
            out[f"optimizer.param_groups.{rename(name)}.lr"] = 0.001
        out |= {"lr_scheduler.last_epoch": 7, "dataloader.dp_rank_0": b"pickled", "list": [1, 2],
                "train_state": {"step": torch.tensor(7, dtype=torch.int32), "losses": [1.0, 2.0]}}
    dcp.save(out, checkpoint_id=folder)
    dist.destroy_process_group()


def spawn(ranks, *arguments):
    torch.multiprocessing.spawn(save, (ranks, *arguments), nprocs=ranks)


def load_sharded(rank, ranks, folder, path, port):
    """Each rank loads its rows of every tensor; rank 0 saves the gathered tensors."""
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank),
                      WORLD_SIZE=str(ranks))
    dist.init_process_group("gloo", rank=rank, world_size=ranks)
    mesh = init_device_mesh("cpu", (ranks,))
    described = dcp.FileSystemReader(folder).read_metadata().state_dict_metadata
    state = {name: distribute_tensor(torch.full(t.size, torch.nan, dtype=t.properties.dtype), mesh, [Shard(0)])
             for name, t in described.items()}
    dcp.load(state, checkpoint_id=folder)
    gathered = {name: w.full_tensor() for name, w in state.items()}
    if not rank:
        torch.save(gathered, path)
    dist.barrier()  # wait for all ranks before leaving the group
    dist.destroy_process_group()


def check_blocks(program, hf, folder, want):
    """Exported without embedding and head; a partial load in torch must not change these."""
    run(program, hf, folder, "--to", "dcp", "--generation", "new", "--without-io")
    outer = ("tok_embeddings.weight", "lm_head.weight")
    state = {name: torch.full((70, 16) if name in outer else w.shape, 5.0, dtype=w.dtype)
             for name, w in want.items()}
    dcp.load(state, checkpoint_id=folder, no_dist=True,
             planner=dcp.DefaultLoadPlanner(allow_partial_load=True))
    assert all((state.pop(name) == 5).all() for name in outer if name in state)
    equal("without embedding and head", state, {k: w for k, w in want.items() if k not in outer})


def check_written(program, path):
    number = 0
    for tied in (False, True):
        for dtype in (torch.float32, torch.bfloat16, torch.float16):
            for size in ("5GB", "4KB"):
                number += 1
                hf, folder, file = (path(f"{number}-{x}") for x in ("hf", "dcp", "torch"))
                model = hf_model(tied=tied, dtype=dtype)
                model.save_pretrained(hf)
                run(program, hf, folder, "--to", "dcp", "--generation", "new", "--shard-size", size)
                files = sum(x.endswith(".distcp") for x in os.listdir(folder))
                assert (files == 1) == (size == "5GB"), files
                what = f"written, tied {tied}, {dtype}, {files} files"
                want = {GENERATIONS["2026"](name): w for name, w in meta_state(model).items()}
                if tied:
                    want["lm_head.weight"] = want["tok_embeddings.weight"]
                check_blocks(program, hf, path(f"{number}-blocks"), want)
                state = {name: torch.full_like(w, torch.nan) for name, w in want.items()}
                dcp.load(state, checkpoint_id=folder, no_dist=True)
                equal(what + ", dcp.load", state, want)
                dcp_to_torch_save(folder, file)
                equal(what + ", dcp_to_torch_save", torch.load(file, weights_only=True), want)
                torch.multiprocessing.spawn(load_sharded, (2, folder, file, 29620 + number), nprocs=2)
                equal(what + ", 2 ranks", torch.load(file, weights_only=True), want)
                run(program, folder, path(f"{number}-back"), "--to", "hf")
                equal(what + ", and back",
                      safetensors.torch.load_file(path(f"{number}-back", "model.safetensors")),
                      safetensors.torch.load_file(os.path.join(hf, "model.safetensors")))


def check(program):
    with tempfile.TemporaryDirectory() as root:
        path = lambda *parts: os.path.join(root, *parts)
        for number, generation in enumerate(GENERATIONS):
            tied, dtype = generation == "2025", torch.bfloat16 if generation == "2026" else torch.float32
            model = hf_model(tied=tied, dtype=dtype)
            model.save_pretrained(path(f"hf{number}"))
            folder = path(f"dump{number}", "checkpoint", "step-7")
            spawn(4, meta_state(model), folder, generation, True, 29600 + number)
            with open(path(f"dump{number}", "params.json"), "w") as f:
                f.write(json.dumps(params_json(model.config)))
            run(program, folder, path(f"back{number}"), "--to", "hf")
            equal(f"{generation}, tied {tied}, {dtype}, 4 ranks with AdamW, to hf",
                  safetensors.torch.load_file(path(f"back{number}", "model.safetensors")),
                  safetensors.torch.load_file(path(f"hf{number}", "model.safetensors")))
        check_written(program, path)
    print("torch", torch.__version__)


def fixture(folder):
    model = hf_model(rope=SCALED)
    shutil.rmtree(folder, ignore_errors=True)
    spawn(2, meta_state(model.bfloat16()), folder, "2026", False, 29610)
    model = hf_model(rope=SCALED)
    with open(os.path.join(folder, "params.json"), "w") as f:
        f.write(json.dumps(params_json(model.config)) + "\n")
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([ids_of()])).logits[0]
    places = [7, 12, 18, 23]
    answer = dict(script="tests/oracle/dcp_folder.py", torch=torch.__version__, ids=ids_of(),
                  places=places, logits=[[round(x, 6) for x in logits[p].tolist()] for p in places])
    with open(os.path.join(folder, "expected.json"), "w") as f:
        f.write("{\n" + ",\n".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in answer.items()) + "\n}\n")


if __name__ == "__main__":
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    fixture(sys.argv[2]) if sys.argv[1] == "fixture" else check(sys.argv[2])
