# SPDX-License-Identifier: Apache-2.0
"""Compares what llamero reads from checkpoints of Megatron-LM with what megatron-core reads.

    python tests/oracle/megatron_checkpoint.py build/llamero [CASE ...] [fixture=FOLDER]

needs megatron-core (0.16), torch and transformers, no GPU. Megatron's own code builds GPTModels on the
CPU (gloo; up to 2 x 2 x 2 tensor-, pipeline- and data-parallel ranks), steps its optimizer on random gradients
and saves by dist_checkpointing; it then loads each checkpoint into one rank. Weights and moments of
`llamero convert` must be the same bits, and logits of the converted folder close to Megatron's. With --own the
optimizers that saved are compared instead: one rank cannot load moments in buckets (dp_reshardable). Not
Megatron's: torch.cuda's functions that the optimizer calls are replaced by the CPU's, and the args
that training saves are an argparse.Namespace written here. The cases whose names begin with torch are also
saved rank by rank, as by --ckpt-format torch, and converted from that. fixture: write the folder
that the tests read, of the case tied, whose folder is small.
"""
import argparse
import contextlib
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import warnings

CASES = {
    "weights": [],
    "plain": ["--optim", "plain"],
    "plain_2x2": ["--optim", "plain", "--bf16", "--qk", "--tp", "2", "--pp", "2"],
    "tied": ["--optim", "plain", "--bf16", "--tied"],
    "tied_2x1": ["--optim", "plain", "--bf16", "--tied", "--tp", "2"],
    "per_layer": ["--optim", "plain", "--tp", "2", "--per-layer"],
    "fully_reshardable": ["--optim", "fully_reshardable", "--bf16", "--pp", "2"],
    "dp_reshardable": ["--optim", "dp_reshardable", "--bf16", "--own"],
    "dp_reshardable_2x2x2": ["--optim", "dp_reshardable", "--bf16", "--own", "--qkv-bias", "--tp", "2",
                             "--pp", "2", "--dp", "2"],
    "dp_reshardable_tied": ["--optim", "dp_reshardable", "--bf16", "--own", "--tied", "--pp", "2", "--dp", "2"],
    "dp_reshardable_fp32": ["--optim", "dp_reshardable", "--own", "--dp", "2", "--bucket", "1000"],
    "dp_reshardable_stages": ["--optim", "dp_reshardable", "--bf16", "--own", "--pp", "2", "--vp", "2", "--dp", "2"],
    "qkv_bias": ["--optim", "plain", "--qkv-bias", "--tp", "2"],
    "interleaved": ["--optim", "plain", "--qkv-bias", "--interleaved"],
    "one_kv_head": ["--optim", "plain", "--bf16", "--tied", "--kv-heads", "1", "--llama3"],
    "one_kv_head_fp32": ["--optim", "plain", "--qk", "--kv-heads", "1", "--llama3", "--pp", "2"],
    "padded": ["--optim", "plain", "--padded", "--tp", "2"],
    "torch": ["--bf16", "--torch", "--tp", "2", "--pp", "2"],
    "torch_plain": ["--optim", "plain", "--bf16", "--torch", "--own", "--qk", "--tp", "2", "--pp", "2"],
    "torch_plain_tied": ["--optim", "plain", "--bf16", "--torch", "--own", "--tied", "--pp", "2", "--vp", "2"],
    "torch_plain_fp32": ["--optim", "plain", "--torch", "--own", "--bias", "--tp", "2"],
    "torch_2x2x2": ["--optim", "dp_reshardable", "--bf16", "--torch", "--own", "--tp", "2", "--pp", "2", "--dp", "2"],
    "torch_stages": ["--optim", "dp_reshardable", "--bf16", "--torch", "--own", "--tied", "--pp", "2", "--vp", "2"],
}
TOKENS = 50  # of the padded vocabulary
V, D, H, K, F, T, STEPS = 64, 16, 4, 4, 24, 16, 3


def patch_cuda(torch):
    """Lets the optimizer run on tensors of the CPU."""
    def on_cpu(f):
        def call(*a, **k):
            if str(k.get("device")).startswith("cuda"):
                k["device"] = "cpu"
            return f(*a, **k)
        return call
    for name in ("tensor", "zeros", "empty", "ones", "full"):
        setattr(torch, name, on_cpu(getattr(torch, name)))
    torch.cuda.current_device = lambda: torch.device("cpu")
    torch.cuda.synchronize = lambda *a, **k: None
    torch.Tensor.cuda = lambda t, *a, **k: t
    to_type = torch.Tensor.type
    torch.Tensor.type = lambda t, *a, **k: (
        to_type(t, *a, **k) if a or k else to_type(t).replace("torch.", "torch.cuda."))


def base_of(a):
    """With llama3's scaling, one whose longest wave is scaled."""
    return 500000 if a.llama3 else 10000


def build(a):
    import torch
    import torch.distributed as dist
    patch_cuda(torch)
    from megatron.core import parallel_state
    from megatron.core.tensor_parallel.random import CudaRNGStatesTracker
    CudaRNGStatesTracker.fork = lambda *a, **k: contextlib.nullcontext()  # there is no dropout
    from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig
    from megatron.core.models.gpt import GPTModel
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
    from megatron.core.optimizer import OptimizerConfig, distrib_optimizer, get_megatron_optimizer
    from megatron.core.transformer.transformer_config import TransformerConfig
    distrib_optimizer.quantize_param_shard = lambda *a, **k: None  # of FP8 parameters: none
    dist.init_process_group("gloo")
    parallel_state.initialize_model_parallel(a.tp, a.pp, a.vp if a.vp > 1 else None,
                                             create_gloo_process_groups=True)
    first = not parallel_state.get_pipeline_model_parallel_rank()
    last = parallel_state.is_pipeline_last_stage(ignore_virtual=True)
    torch.manual_seed(1234 + dist.get_rank(parallel_state.get_model_parallel_group()))
    dtype = torch.bfloat16 if a.bf16 else torch.float32
    config = TransformerConfig(
        num_layers=a.layers, hidden_size=D, num_attention_heads=H, num_query_groups=a.kv_heads, kv_channels=K,
        ffn_hidden_size=F, add_bias_linear=a.bias, gated_linear_unit=True,
        activation_func=torch.nn.functional.silu, normalization="RMSNorm", layernorm_epsilon=1e-5,
        hidden_dropout=0.0, attention_dropout=0.0, use_cpu_initialization=True,
        tensor_model_parallel_size=a.tp, pipeline_model_parallel_size=a.pp, pipeline_dtype=dtype,
        virtual_pipeline_model_parallel_size=a.vp if a.vp > 1 else None,
        params_dtype=dtype, bf16=a.bf16, qk_layernorm=a.qk, gradient_accumulation_fusion=False,
        masked_softmax_fusion=False, bias_activation_fusion=False, bias_dropout_fusion=False,
        apply_rope_fusion=False, add_qkv_bias=a.qkv_bias, rotary_interleaved=a.interleaved)
    models = [GPTModel(
        config, get_gpt_layer_local_spec(qk_layernorm=a.qk, normalization="RMSNorm"), vocab_size=V,
        max_sequence_length=T, position_embedding_type="rope", rotary_base=base_of(a),
        rope_scaling=a.llama3, rope_scaling_factor=4.0,
        share_embeddings_and_output_weights=a.tied, pre_process=first and chunk == 0,
        post_process=last and chunk == a.vp - 1, vp_stage=chunk if a.vp > 1 else None).to(dtype)
        for chunk in range(a.vp)]
    is_distributed = a.optim not in ("none", "plain")
    ddp = [DistributedDataParallel(config, DistributedDataParallelConfig(
        grad_reduce_in_fp32=True, use_distributed_optimizer=is_distributed, bucket_size=a.bucket or None,
        overlap_grad_reduce=a.bucket > 0), m) for m in models]
    optimizer = None
    if a.optim != "none":
        optimizer = get_megatron_optimizer(OptimizerConfig(
            optimizer="adam", lr=1e-2, weight_decay=0.1, bf16=a.bf16, params_dtype=dtype,
            use_distributed_optimizer=is_distributed, clip_grad=0.0, adam_beta2=0.95), ddp)
    metadata = {"distrib_optim_sharding_type": a.optim, "singleton_local_shards": a.per_layer,
                "distrib_optim_fully_reshardable_mem_efficient": False,
                "dp_cp_group": parallel_state.get_data_parallel_group(with_context_parallel=True)}
    return torch, dist, models, ddp, optimizer, metadata


def run_args(torch, a):
    return argparse.Namespace(
        num_layers=a.layers, hidden_size=D, num_attention_heads=H, group_query_attention=True,
        num_query_groups=a.kv_heads, kv_channels=K, ffn_hidden_size=F, swiglu=True, normalization="RMSNorm",
        norm_epsilon=1e-5, position_embedding_type="rope", rotary_base=base_of(a), rotary_percent=1.0,
        untie_embeddings_and_output_weights=not a.tied, add_bias_linear=a.bias, add_qkv_bias=a.qkv_bias,
        qk_layernorm=a.qk, max_position_embeddings=T, seq_length=T, padded_vocab_size=V,
        vocab_size=TOKENS if a.padded else None, make_vocab_size_divisible_by=16, tensor_model_parallel_size=a.tp,
        pipeline_model_parallel_size=a.pp,
        virtual_pipeline_model_parallel_size=a.vp if a.vp > 1 else None, num_experts=None, consumed_train_samples=4 * STEPS,
        rotary_interleaved=a.interleaved, apply_layernorm_1p=False, use_rope_scaling=a.llama3, rope_scaling_factor=4.0,
        params_dtype=torch.bfloat16 if a.bf16 else torch.float32, window_size=None,
        activation_func=torch.nn.functional.silu, data_path=[pathlib.Path("corpus")])


def own_state(optimizer, models, a):
    """What this rank's optimizer has: pieces of the tensors of one tensor-parallel rank."""
    from megatron.core import parallel_state
    inner, pieces = optimizer.chained_optimizers[0], []
    for model in models:
        for name, p in model.named_parameters():
            if a.tied and name == "output_layer.weight":
                continue
            at = name.split(".")
            if at[1] == "layers":
                at[2] = str(model.decoder.layers[int(at[2])].layer_number - 1)
            start = 0
            if a.optim == "plain":
                main = p.main_param if a.bf16 else p
                state = {"param": main.detach(), **inner.optimizer.state[main]}
            else:
                try:
                    start = inner._get_model_param_range_map(p)["param"].start
                except KeyError:  # other data-parallel ranks have it
                    continue
                state = inner._get_main_param_and_optimizer_states(p)
            pieces.append({"name": ".".join(at), "tp": parallel_state.get_tensor_model_parallel_rank(),
                           "dim": p.partition_dim if getattr(p, "tensor_model_parallel", False) else -1,
                           "shape": p.shape, "start": start,
                           "state": {k: state[k].clone() for k in ("param", "exp_avg", "exp_avg_sq")}})
    return pieces


def merge_own_state(torch, folder, a):
    """Joins the pieces of all ranks to tensors under Hugging Face's names."""
    whole, out = {}, {}
    for file in pathlib.Path(folder).glob("own_*.pt"):
        for p in torch.load(file):
            ranks = whole.setdefault(p["name"], {"dim": p["dim"]})
            for kind, piece in p["state"].items():
                t = ranks.setdefault(kind, {}).setdefault(p["tp"], torch.full(p["shape"], float("nan")))
                t.view(-1)[p["start"]:p["start"] + piece.numel()] = piece.view(-1)
    for name, ranks in whole.items():
        dim = ranks.pop("dim")
        for kind, by_rank in ranks.items():
            all_ranks = [by_rank[r] for r in sorted(by_rank)]
            if ".linear_fc1." in name:  # each rank has a slice of either half
                all_ranks = [t.chunk(2)[half] for half in (0, 1) for t in all_ranks]
            t = torch.cat(all_ranks, dim) if dim >= 0 else all_ranks[0]
            assert not t.isnan().any(), name
            suffix = "" if kind == "param" else "." + kind
            out |= {n + suffix: x.clone() for n, x in parts(name, t, a).items()}
    return out


def save_torch(torch, dist, a, models, optimizer):
    """Writes this rank's folder of --ckpt-format torch, with its optimizer."""
    from megatron.core import parallel_state
    name = f"mp_rank_{parallel_state.get_tensor_model_parallel_rank():02d}"
    if a.pp > 1:
        name += f"_{parallel_state.get_pipeline_model_parallel_rank():03d}"
    folder = pathlib.Path(a.folder, "torch", f"iter_{STEPS:07d}", name)
    folder.mkdir(parents=True, exist_ok=True)
    if optimizer and a.optim != "plain":
        optimizer.save_parameter_state(folder / "distrib_optim.pt")
    if parallel_state.get_data_parallel_rank():
        return
    state = {"args": run_args(torch, a), "checkpoint_version": 3.0, "iteration": STEPS}
    for i, m in enumerate(models):
        state[f"model{i}" if a.vp > 1 else "model"] = m.state_dict_for_save_checkpoint()
    if optimizer:
        state["optimizer"] = optimizer.state_dict()
    torch.save(state, folder / "model_optim_rng.pt")
    if dist.get_rank() == 0:
        pathlib.Path(a.folder, "torch", "latest_checkpointed_iteration.txt").write_text(str(STEPS))


def save(a):
    torch, dist, models, ddp, optimizer, metadata = build(a)
    from megatron.core import dist_checkpointing
    gradients = torch.Generator().manual_seed(5 + dist.get_rank())
    for _ in range(STEPS if optimizer else 0):
        for p in [p for m in ddp for p in m.parameters()]:
            p.main_grad.copy_(torch.randn(p.shape, generator=gradients))
        optimizer.step()
    state = {"args": run_args(torch, a), "checkpoint_version": 3.0, "iteration": STEPS}
    for i, model in enumerate(models):
        state[f"model{i}" if a.vp > 1 else "model"] = model.sharded_state_dict(metadata=metadata)
    if a.own:
        own = own_state(optimizer, models, a)
    if optimizer:
        state["optimizer"] = optimizer.sharded_state_dict(state if a.vp > 1 else state["model"], metadata=metadata)
    folder = f"{a.folder}/iter_{STEPS:07d}"
    if dist.get_rank() == 0:
        os.makedirs(folder)
    dist.barrier()
    if a.own:
        torch.save(own, f"{a.folder}/own_{dist.get_rank()}.pt")
    if a.torch:
        save_torch(torch, dist, a, models, optimizer)
    metadata.pop("dp_cp_group")
    dist_checkpointing.save(state, folder, content_metadata=metadata)
    if dist.get_rank() == 0:
        pathlib.Path(a.folder, "latest_checkpointed_iteration.txt").write_text(str(STEPS))
    dist.barrier()


def halves(t):
    """Rows of heads whose rotary pairs are adjacent, with Hugging Face's pairs."""
    return t.view(-1, K // 2, 2, *t.shape[1:]).transpose(1, 2).reshape(t.shape)


def parts(name, t, a):
    """Megatron's tensor of one rank as Hugging Face's."""
    at = name.split(".")
    layer = f"model.layers.{at[2]}." if at[1] == "layers" else ""
    plain = {"embedding.word_embeddings.weight": "model.embed_tokens.weight",
             "output_layer.weight": "lm_head.weight", "decoder.final_layernorm.weight": "model.norm.weight",
             "input_layernorm.weight": "input_layernorm.weight",
             "pre_mlp_layernorm.weight": "post_attention_layernorm.weight",
             "self_attention.linear_proj.weight": "self_attn.o_proj.weight",
             "self_attention.q_layernorm.weight": "self_attn.q_norm.weight",
             "self_attention.k_layernorm.weight": "self_attn.k_norm.weight",
             "self_attention.linear_proj.bias": "self_attn.o_proj.bias",
             "mlp.linear_fc2.weight": "mlp.down_proj.weight", "mlp.linear_fc2.bias": "mlp.down_proj.bias"}
    rest = ".".join(at[3:]) if layer else name
    if rest.startswith("self_attention.linear_qkv."):
        groups = t.view(a.kv_heads, H // a.kv_heads + 2, K, *t.shape[1:])
        q, k, v = (x.reshape(-1, *t.shape[1:]) for x in groups.split([H // a.kv_heads, 1, 1], dim=1))
        if a.interleaved:
            q, k = halves(q), halves(k)
        return {layer + f"self_attn.{n}_proj.{at[-1]}": x for n, x in zip("qkv", (q, k, v))}
    if rest.startswith("mlp.linear_fc1."):
        gate, up = t.chunk(2)
        return {layer + f"mlp.gate_proj.{at[-1]}": gate, layer + f"mlp.up_proj.{at[-1]}": up}
    has_padding = a.padded and rest in ("embedding.word_embeddings.weight", "output_layer.weight")
    return {layer + plain[rest]: t[:TOKENS] if has_padding else t}


def load(a):
    """Loads into one rank, and saves what it has under Hugging Face's names."""
    torch, dist, (model,), (ddp,), optimizer, metadata = build(a)
    from megatron.core import dist_checkpointing
    if a.optim not in ("none", "plain"):  # the distributed optimizer's state exists after a step
        from megatron.core.optimizer.distrib_optimizer import DistributedOptimizer
        for p in ddp.parameters():
            p.main_grad.zero_()
        optimizer.step()
        set_states = DistributedOptimizer._set_main_param_and_optimizer_states

        # torch's AdamW keeps the step beside the moments; Apex's, which runs on GPUs, does not.
        def set_all_but_step(self, param, tensors):
            set_states(self, param, {"step": torch.tensor(float(STEPS)), **tensors})
        DistributedOptimizer._set_main_param_and_optimizer_states = set_all_but_step
    state = {"model": model.sharded_state_dict(metadata=metadata)}
    if optimizer:
        state["optimizer"] = optimizer.sharded_state_dict(state["model"], is_loading=True,
                                                          metadata=metadata)
    state = dist_checkpointing.load(state, f"{a.folder}/iter_{STEPS:07d}")
    model.load_state_dict(state["model"], strict=False)
    inner = optimizer.chained_optimizers[0] if hasattr(optimizer, "chained_optimizers") else optimizer
    if optimizer:
        optimizer.load_state_dict(state["optimizer"])
    out = {}
    for name, p in model.named_parameters():
        main = getattr(p, "main_param", None)
        main = p if main is None else main.view(p.shape)
        kinds = {"": main.detach().float()}
        if optimizer:
            of = inner.optimizer.state[getattr(p, "main_param", p) if a.bf16 else p]
            kinds |= {"." + k: of[k].view(p.shape) for k in ("exp_avg", "exp_avg_sq")}
        for suffix, t in kinds.items():
            out |= {n + suffix: x.clone() for n, x in parts(name, t, a).items()}
    model.eval()
    tokens = torch.arange(T)[None] * 7 % TOKENS
    mask = torch.triu(torch.ones(1, 1, T, T, dtype=torch.bool), 1)
    with torch.no_grad():
        out["logits"] = model(tokens, torch.arange(T)[None], mask).float()
        if a.padded:
            out["logits"] = out["logits"][..., :TOKENS].clone()
    torch.save(out, f"{a.folder}/expected.pt")


def run(role, folder, options, ranks):
    environment = dict(os.environ, MASTER_ADDR="127.0.0.1", MASTER_PORT="29511", WORLD_SIZE=str(ranks),
                       TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD="1")  # of args, with any classes
    running = [subprocess.Popen([sys.executable, __file__, role, folder, *options],
                                env=dict(environment, RANK=str(r))) for r in range(ranks)]
    if any([p.wait() for p in running]):
        sys.exit(f"{role} {' '.join(options)}: failed")


def degree(options, flag):
    return int(options[options.index(flag) + 1]) if flag in options else 1


def one_rank(options):
    kept, at = [], 0
    while at < len(options):
        if options[at] in ("--tp", "--pp"):
            at += 2
            continue
        kept.append(options[at])
        at += 1
    return kept


def compare_tensors(llamero, name, folder, options, expected):
    """Compares what convert writes with `expected`, bit by bit, and returns the number of tensors."""
    import torch
    from safetensors.torch import load_file
    compared = 0
    for target, has_moments in (("hf", False), ("native", True)):
        to = f"{folder}/{target}"
        source = f"{folder}/torch" if "--torch" in options else folder
        subprocess.run([llamero, "convert", source, to, "--to", target], check=True)
        got = {}
        for file in pathlib.Path(to).rglob("*.safetensors"):
            got |= load_file(file)
        wanted = {n: t for n, t in expected.items() if has_moments or "exp_avg" not in n}
        assert set(got) == set(wanted), (name, target, set(got) ^ set(wanted))
        for n, t in wanted.items():
            assert torch.equal(got[n].float(), t), (name, target, n)
        compared += len(wanted)
    return compared


def compare(llamero, name, folder, options):
    import torch
    from transformers import AutoModelForCausalLM
    expected = torch.load(f"{folder}/expected.pt")
    logits = expected.pop("logits")
    compared = compare_tensors(llamero, name, folder, options, expected)
    tokens = torch.arange(T)[None] * 7 % TOKENS
    with torch.no_grad():
        ours = AutoModelForCausalLM.from_pretrained(f"{folder}/hf", dtype=torch.float32)(tokens).logits
    difference = ((ours - logits).norm() / logits.norm()).item()
    assert difference < (2e-2 if "--bf16" in options else 1e-5), (name, difference)
    print(f"{name}: {compared} tensors equal, logits differ by {difference:.1e}", flush=True)


def compare_own_state(llamero, name, folder, options):
    """Compares with the state of the optimizers that saved."""
    import torch
    expected = merge_own_state(torch, folder, parse(["", folder, *options]))
    compared = compare_tensors(llamero, name, folder, options, expected)
    print(f"{name}: {compared} tensors equal", flush=True)


def main():
    llamero = os.path.abspath(sys.argv[1])
    with tempfile.TemporaryDirectory() as root:
        chosen = [a for a in sys.argv[2:] if a in CASES] or list(CASES)
        fixture = [a.split("=", 1)[1] for a in sys.argv[2:] if a.startswith("fixture=")]
        for name in chosen:
            options = CASES[name]
            folder, ranks = f"{root}/{name}", 1
            for flag in ("--tp", "--pp", "--dp"):
                ranks *= degree(options, flag)
            run("save", folder, options, ranks)
            if "--own" in options:
                compare_own_state(llamero, name, folder, options)
                continue
            run("load", folder, one_rank(options), 1)
            if fixture and name == "tied":
                shutil.copytree(folder, fixture[0], ignore=shutil.ignore_patterns("expected.pt"))
            compare(llamero, name, folder, options)


def parse(arguments=None):
    p = argparse.ArgumentParser()
    p.add_argument("role")
    p.add_argument("folder")
    p.add_argument("--tp", type=int, default=1)
    p.add_argument("--pp", type=int, default=1)
    p.add_argument("--dp", type=int, default=1)
    p.add_argument("--vp", type=int, default=1, help="model chunks of a pipeline-parallel rank")
    p.add_argument("--kv-heads", type=int, default=2)
    p.add_argument("--bucket", type=int, default=0, help="elements of a bucket; 0: one bucket")
    p.add_argument("--optim", default="none", help="none, plain or a distrib_optim_sharding_type")
    for flag in ("--bf16", "--tied", "--qk", "--per-layer", "--qkv-bias", "--bias", "--interleaved", "--padded",
                 "--torch", "--own", "--llama3"):
        p.add_argument(flag, action="store_true")
    a = p.parse_args(arguments)
    a.layers = 2 * a.vp
    return a


if __name__ == "__main__":
    warnings.filterwarnings("ignore")
    if sys.argv[1] in ("save", "load"):
        {"save": save, "load": load}[sys.argv[1]](parse())
    else:
        main()
