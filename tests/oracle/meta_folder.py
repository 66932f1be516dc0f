#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Exchanges Meta's .pth files between PyTorch and llamero.

    python tests/oracle/meta_folder.py check PROGRAM
    python tests/oracle/meta_folder.py fixture tests/checkpoint/data

check: `PROGRAM convert --to meta` converts models that Transformers saved; torch.load (weights_only) reads
them, and a Llama whose RoPE rotates adjacent elements, as Meta's does, must have the same logits.
Converted back they must be bit-identical, from one file and from files of 2 and 4 ranks sharded as in
Llama 1, 2 and 3.

fixture: writes the folders meta-llama2 and meta-llama3 with a small model in files of several ranks and
its logits.
"""
import json
import math
import os
import subprocess
import sys
import tempfile

import safetensors.torch
import torch
import transformers

VOCAB = 40
SCALED = dict(rope_type="llama3", rope_theta=1000.0, factor=8.0, low_freq_factor=1.0,
              high_freq_factor=4.0, original_max_position_embeddings=8192)
PLAIN = dict(rope_type="default", rope_theta=10000.0)


def hf_model(tied=False, rope=PLAIN, kv_heads=2, dtype=torch.float32):
    config = transformers.LlamaConfig(
        vocab_size=VOCAB, hidden_size=16, intermediate_size=24, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=kv_heads, max_position_embeddings=64,
        rms_norm_eps=1e-5, rope_parameters=rope, tie_word_embeddings=tied, initializer_range=0.3,
        attn_implementation="eager")
    torch.manual_seed(11)
    model = transformers.LlamaForCausalLM(config)
    with torch.no_grad():
        for w in model.parameters():
            if w.dim() == 1:
                w.add_(0.2 * torch.randn_like(w))
            w.copy_(w.bfloat16().float())
    return model.to(dtype).eval()


def meta_state(model):
    """The same weights with Meta's names and row order."""
    c, out = model.config, {}
    names = {"self_attn.q_proj": "attention.wq", "self_attn.k_proj": "attention.wk",
             "self_attn.v_proj": "attention.wv", "self_attn.o_proj": "attention.wo",
             "mlp.gate_proj": "feed_forward.w1", "mlp.up_proj": "feed_forward.w3",
             "mlp.down_proj": "feed_forward.w2", "input_layernorm": "attention_norm",
             "post_attention_layernorm": "ffn_norm"}
    for name, w in model.named_parameters():
        name = name.removeprefix("model.").replace("embed_tokens", "tok_embeddings")
        name = name.replace("lm_head", "output")
        for theirs, own in names.items():
            name = name.replace(theirs, own)
        w = w.detach()
        if name.endswith(("wq.weight", "wk.weight")):
            heads = c.num_attention_heads if "wq" in name else c.num_key_value_heads
            w = w.view(heads, 2, w.shape[0] // heads // 2, -1).transpose(1, 2).reshape(w.shape)
        out[name] = w.clone()
    if c.tie_word_embeddings:  # Meta's program expects both
        out["output.weight"] = out["tok_embeddings.weight"].clone()
    return out


def params_json(config, **more):
    scaled = config.rope_parameters["rope_type"] == "llama3"
    more |= dict(use_scaled_rope=True) if scaled else {}
    return dict(dim=config.hidden_size, n_layers=config.num_hidden_layers,
                n_heads=config.num_attention_heads, n_kv_heads=config.num_key_value_heads,
                vocab_size=-1, multiple_of=8, norm_eps=config.rms_norm_eps,
                rope_theta=config.rope_parameters["rope_theta"]) | more


def frequencies(config, half):
    rope = config.rope_parameters
    f = rope["rope_theta"] ** (-torch.arange(half, dtype=torch.float64) / half)
    if rope["rope_type"] != "llama3":
        return f
    wave, old = 2 * math.pi / f, rope["original_max_position_embeddings"]
    low, high = rope["low_freq_factor"], rope["high_freq_factor"]
    smooth = ((old / wave - low) / (high - low)).clamp(0, 1)
    return (1 - smooth) * f / rope["factor"] + smooth * f


def logits_as_meta(w, config, ids):
    """A Llama whose RoPE rotates adjacent elements; float64."""
    w = {k: v.double() for k, v in w.items()}
    T, H, G = len(ids), config.num_attention_heads, config.num_key_value_heads
    K = w["layers.0.attention.wq.weight"].shape[0] // H
    turn = torch.polar(torch.ones(T, K // 2, dtype=torch.float64),
                       torch.outer(torch.arange(T, dtype=torch.float64), frequencies(config, K // 2)))
    norm = lambda x, g: x * torch.rsqrt(x.pow(2).mean(-1, True) + config.rms_norm_eps) * g

    def rotate(x):
        pairs = torch.view_as_complex(x.reshape(T, -1, K // 2, 2))
        return torch.view_as_real(pairs * turn[:, None]).reshape(T, -1, K)

    x = w["tok_embeddings.weight"][ids]
    for i in range(config.num_hidden_layers):
        g = lambda name: w[f"layers.{i}.{name}.weight"]
        h = norm(x, g("attention_norm"))
        q, k = rotate((h @ g("attention.wq").T).view(T, H, K)), rotate((h @ g("attention.wk").T).view(T, G, K))
        v = (h @ g("attention.wv").T).view(T, G, K)
        k, v = k.repeat_interleave(H // G, 1), v.repeat_interleave(H // G, 1)
        score = torch.einsum("qhk,thk->hqt", q, k) / math.sqrt(K)
        score = score.masked_fill(torch.triu(torch.ones(T, T, dtype=torch.bool), 1), -torch.inf)
        x = x + torch.einsum("hqt,thk->qhk", score.softmax(-1), v).reshape(T, -1) @ g("attention.wo").T
        h = norm(x, g("ffn_norm"))
        x = x + (torch.nn.functional.silu(h @ g("feed_forward.w1").T) * (h @ g("feed_forward.w3").T)) @ g("feed_forward.w2").T
    return norm(x, w["norm.weight"]) @ w.get("output.weight", w["tok_embeddings.weight"]).T


def split(state, ranks, llama3, kv_heads):
    """One file per rank; those of Llama 1 were views of one storage."""
    out = [{} for _ in range(ranks)]
    for name, w in state.items():
        across = name.endswith(("wo.weight", "w2.weight")) or (name.startswith("tok_") and not llama3)
        if name.endswith(("wk.weight", "wv.weight")) and ranks > kv_heads:
            w = w.view(kv_heads, -1, w.shape[1]).repeat_interleave(ranks // kv_heads, 0).flatten(0, 1)
        parts = [w] * ranks if w.dim() == 1 else w.chunk(ranks, 1 if across else 0)
        for r in range(ranks):
            out[r][name] = parts[r] if not llama3 else parts[r].clone()
    return out


def save(folder, files, params):
    os.makedirs(folder, exist_ok=True)
    for r, state in enumerate(files):
        torch.save(state, os.path.join(folder, f"consolidated.{r:02}.pth"))
    with open(os.path.join(folder, "params.json"), "w") as f:
        f.write(json.dumps(params) + "\n")


def ids_of(count=24):
    return [(7 * i * i + 11 * i + 5) % VOCAB for i in range(count)]


def run(program, *arguments):
    subprocess.run([program, "convert", *map(str, arguments)], check=True, stdout=subprocess.DEVNULL)


def equal(what, a, b):
    assert a.keys() == b.keys(), (what, a.keys() ^ b.keys())
    for k in a:
        assert a[k].dtype == b[k].dtype and torch.equal(a[k], b[k]), (what, k)
    print(f"{what}: {len(a)} tensors, bit-identical")


def check(program):
    with tempfile.TemporaryDirectory() as root:
        path = lambda *parts: os.path.join(root, *parts)
        pth = lambda folder: torch.load(path(folder, "consolidated.00.pth"), weights_only=True)
        hf = lambda folder: safetensors.torch.load_file(path(folder, "model.safetensors"))
        number = 0
        for tied in (False, True):
            for rope in (PLAIN, SCALED):
                for dtype in (torch.float32, torch.bfloat16, torch.float16):
                    number += 1
                    name = f"{number}-"
                    what = f"tied {tied}, {rope['rope_type']}, {dtype}"
                    model = hf_model(tied, rope, 2 if number % 3 else 1, dtype)
                    model.save_pretrained(path(name + "hf"))
                    run(program, path(name + "hf"), path(name + "meta"), "--to", "meta")
                    state = pth(name + "meta")
                    equal(what + ", hf to meta", state, meta_state(model))
                    # In float32: a model cast to half precision has rounded RoPE frequencies.
                    model_f32 = hf_model(tied, rope, 2 if number % 3 else 1)
                    with torch.no_grad():
                        want = model_f32(input_ids=torch.tensor([ids_of()])).logits[0]
                    off = (logits_as_meta(state, model.config, ids_of()) - want).abs().max().item()
                    print(f"{what}: logits differ by {off:.1e}")
                    assert off < 2e-5
                    run(program, path(name + "meta"), path(name + "back"), "--to", "hf")
                    equal(what + ", and back", hf(name + "back"), hf(name + "hf"))
                    run(program, path(name + "meta", "consolidated.00.pth"), path(name + "run"))
                    run(program, path(name + "run"), path(name + "again"), "--to", "meta")
                    equal(what + ", through a run", pth(name + "again"), {k: w.float() for k, w in state.items()})
                    for ranks, llama3 in ((2, True), (2, False), (4, True), (4, False)):
                        folder = path(name + f"{ranks}-{llama3}")
                        files = split(state, ranks, llama3, model.config.num_key_value_heads)
                        if not llama3:
                            files[0]["rope.freqs"] = torch.ones(2)
                        save(folder, files, params_json(model.config))
                        run(program, folder, folder + "-hf", "--to", "hf")
                        equal(f"{what}, {ranks} files, {'3' if llama3 else '1 and 2'}",
                              safetensors.torch.load_file(os.path.join(folder + "-hf", "model.safetensors")),
                              hf(name + "hf"))
    print("torch", torch.__version__, "transformers", transformers.__version__)


def fixture(root):
    for name, ranks, llama3, rope in (("meta-llama2", 2, False, PLAIN), ("meta-llama3", 4, True, SCALED)):
        model = hf_model(tied=not llama3, rope=rope)
        folder = os.path.join(root, name)
        state = {k: w.bfloat16() for k, w in meta_state(model).items()}
        if model.config.tie_word_embeddings:  # the tests read files without it
            del state["output.weight"]
        save(folder, split(state, ranks, llama3, 2), params_json(model.config))
        with torch.no_grad():
            logits = model.float()(input_ids=torch.tensor([ids_of()])).logits[0]
        places = [7, 12, 18, 23]
        answer = dict(script="tests/oracle/meta_folder.py", torch=torch.__version__, ids=ids_of(),
                      places=places,
                      logits=[[round(x, 6) for x in logits[p].tolist()] for p in places])
        with open(os.path.join(folder, "expected.json"), "w") as f:
            f.write("{\n" + ",\n".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in answer.items()) + "\n}\n")


if __name__ == "__main__":
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    fixture(sys.argv[2]) if sys.argv[1] == "fixture" else check(sys.argv[2])
