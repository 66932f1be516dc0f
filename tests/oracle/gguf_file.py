#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks llamero's GGUF files with the gguf package and llama.cpp.

    python tests/oracle/gguf_file.py PROGRAM [MORE_TOKENIZERS...]

Converts models that Transformers saved (Llamas, one Qwen3), with tokenizers of six kinds (and those given; a SentencePiece
model also as Hugging Face's tokenizer.json), to GGUF files of each type.  Every tensor must have the
expected bits, q8_0 those of gguf's own quantizer.  In llama.cpp the tokenizer must give the same IDs,
and the f32 model the same greedy tokens as Transformers with the file's weights.  (In other types
llama.cpp also rounds activations: the script prints how many tokens are equal.)

Uses llama-cpp-python if installed (0.3.36, built for a CPU), else xllamacpp (2026.10.11549); requires
torch, transformers, numpy and gguf 0.19.0.
"""
import copy
import json
import os
import shutil
import subprocess
import sys
import tempfile
import urllib.request

import gguf
import numpy
import sentencepiece
import tokenizers
import torch
import transformers

try:
    import llama_cpp
except ImportError:
    import xllamacpp

DATA = "tests/tokenizer/data/"
TOKENIZERS = [DATA + "small.json", DATA + "small/tokenizer.model", DATA + "sentence_bytes.model"]
TYPES = {"f32": gguf.GGMLQuantizationType.F32, "bf16": gguf.GGMLQuantizationType.BF16,
         "f16": gguf.GGMLQuantizationType.F16, "q8_0": gguf.GGMLQuantizationType.Q8_0}
TEXT = "The quick brown fox, it's 12345 years old!\n\n  Straße naïve 日本語 \U0001F600 x = y+1;\tdone "
LAYER = {"self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
         "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
         "mlp.down_proj": "ffn_down", "input_layernorm": "attn_norm",
         "post_attention_layernorm": "ffn_norm", "self_attn.q_norm": "attn_q_norm",
         "self_attn.k_norm": "attn_k_norm"}
OUTSIDE = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}


QWEN2 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|"
         r"\s*[\r\n]+|\s+(?!\S)|\s+")


def train_bpe(path, steps, normalizer=None):
    """Trains a byte-level BPE with these pre_tokenizers on texts of this repository."""
    model = tokenizers.Tokenizer(tokenizers.models.BPE())
    model.pre_tokenizer = tokenizers.pre_tokenizers.Sequence(steps)
    if normalizer:
        model.normalizer = normalizer
    model.decoder = tokenizers.decoders.ByteLevel()
    texts = [open(name).read() for name in ("README.md", "ARCHITECTURE.md", __file__)] + [TEXT] * 9
    model.train_from_iterator(texts, tokenizers.trainers.BpeTrainer(
        vocab_size=900, special_tokens=["<s>", "</s>"], show_progress=False,
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet()))
    model.save(path)


def as_json(path, model):
    """Writes a SentencePiece model as a tokenizer.json like Llama 2's: merges ordered by score."""
    has = sentencepiece.SentencePieceProcessor(model_file=model)
    count = has.get_piece_size()
    vocab = {has.id_to_piece(i): i for i in range(count)}
    normal = [i for i in range(count) if not (has.is_control(i) or has.is_byte(i) or has.is_unknown(i))]
    cuts = []
    for i in normal:
        piece = has.id_to_piece(i)
        for k in range(1, len(piece)):
            if piece[:k] in vocab and piece[k:] in vocab:
                cuts.append((-has.get_score(i), vocab[piece[:k]], vocab[piece[k:]], piece[:k], piece[k:]))
    json.dump({
        "version": "1.0", "truncation": None, "padding": None,
        "added_tokens": [dict(id=i, content=has.id_to_piece(i), single_word=False, lstrip=False,
                              rstrip=False, normalized=False, special=True)
                         for i in range(count) if has.is_control(i) or has.is_unknown(i)],
        "normalizer": {"type": "Sequence", "normalizers": [
            {"type": "Prepend", "prepend": "\u2581"},
            {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}]},
        "pre_tokenizer": None, "post_processor": None,
        "decoder": {"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "},
            {"type": "ByteFallback"}, {"type": "Fuse"},
            {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
        "model": {"type": "BPE", "dropout": None, "unk_token": "<unk>", "fuse_unk": True,
                  "byte_fallback": True, "continuing_subword_prefix": None,
                  "end_of_word_suffix": None, "vocab": vocab,
                  "merges": [f"{left} {right}" for *_, left, right in sorted(cuts)]}},
        open(path, "w"))


def is_sentencepiece(name):
    """Whether a .model is a protobuf, whose first byte is the tag of `pieces`; tiktoken's is text."""
    with open(name, "rb") as file:
        return name.endswith(".model") and file.read(1) == b"\n"


def others(root, models):
    path = lambda name: os.path.join(root, name)
    pre = tokenizers.pre_tokenizers
    train_bpe(path("qwen2.json"), [pre.Split(tokenizers.Regex(QWEN2), "isolated"),
                                   pre.ByteLevel(add_prefix_space=False, use_regex=False)],
              tokenizers.normalizers.NFC())
    train_bpe(path("smollm.json"), [pre.Digits(individual_digits=True),
                                    pre.ByteLevel(add_prefix_space=False)])
    for k, model in enumerate(models):
        as_json(path(f"sentence{k}.json"), model)
    return [path("qwen2.json"), path("smollm.json")] + [path(f"sentence{k}.json")
                                                        for k in range(len(models))]


def make(vocab, tied, scaled, qk_norm=False):
    rope = dict(rope_type="default", rope_theta=10000.0)
    if scaled:
        rope = dict(rope_type="llama3", rope_theta=1000.0, factor=8.0, low_freq_factor=1.0,
                    high_freq_factor=4.0, original_max_position_embeddings=64)
    torch.manual_seed(5)
    kind, model_kind = transformers.LlamaConfig, transformers.LlamaForCausalLM
    if qk_norm:
        kind, model_kind = transformers.Qwen3Config, transformers.Qwen3ForCausalLM
    model = model_kind(kind(
        vocab_size=vocab, hidden_size=64, intermediate_size=96, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, head_dim=32 if scaled else 16,
        max_position_embeddings=256, rms_norm_eps=1e-5, rope_parameters=rope,
        tie_word_embeddings=tied, initializer_range=0.3, attn_implementation="eager",
        bos_token_id=None, eos_token_id=None))
    with torch.no_grad():
        for w in model.parameters():
            if w.dim() == 1:
                w.add_(0.2 * torch.randn_like(w))
    return model.eval()


def expected(model):
    out, c = {}, model.config
    for name, w in model.named_parameters():
        name, w = name.removesuffix(".weight"), w.detach().numpy()
        if name.endswith(("q_proj", "k_proj")) and c.model_type == "llama":
            heads = c.num_attention_heads if "q_proj" in name else c.num_key_value_heads
            w = w.reshape(heads, 2, w.shape[0] // heads // 2, -1).swapaxes(1, 2).reshape(w.shape)
        if name in OUTSIDE:
            name = OUTSIDE[name]
        else:
            _, _, layer, rest = name.split(".", 3)
            name = f"blk.{layer}.{LAYER[rest]}"
        out[name + ".weight"] = w
    return out


def check_tensors(path, model, dtype):
    reader, want, equal = gguf.GGUFReader(path), expected(model), 0
    field = lambda key: reader.get_field(key).contents()
    c = model.config
    kind = c.model_type
    assert field("general.architecture") == kind and field(f"{kind}.block_count") == 2
    assert field(f"{kind}.attention.head_count_kv") == 2
    assert field(f"{kind}.vocab_size") == c.vocab_size
    assert len(field("tokenizer.ggml.tokens")) == c.vocab_size
    for t in reader.tensors:
        if t.name == "rope_freqs.weight":
            default = c.rope_parameters["rope_theta"] ** (-numpy.arange(0, c.head_dim, 2) / c.head_dim)
            got = default / model.model.rotary_emb.inv_freq.numpy()
            assert numpy.allclose(t.data, got, rtol=1e-5), (t.data, got)
            equal += 1
            continue
        w = want.pop(t.name)
        kind = TYPES[dtype] if w.ndim == 2 else TYPES["f32"]
        assert t.tensor_type == kind, (t.name, t.tensor_type)
        assert list(t.shape) == list(reversed(w.shape)), (t.name, t.shape, w.shape)
        expected_bytes = gguf.quants.quantize(w, kind)
        assert t.data.tobytes() == expected_bytes.tobytes(), (path, t.name)
        back = gguf.quants.dequantize(t.data, kind).reshape(w.shape)
        assert numpy.array_equal(back, gguf.quants.dequantize(expected_bytes, kind).reshape(w.shape))
        equal += 1
    assert not want, want.keys()
    print(f"{os.path.basename(path)}: {equal} tensors equal")


def post(server, path, **body):
    request = urllib.request.Request(server.listening_address + path, json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    return json.load(urllib.request.urlopen(request))


def rounded(model, dtype):
    """A copy of the model with weights rounded to the dtype of a file."""
    out, kind = copy.deepcopy(model), TYPES[dtype]
    with torch.no_grad():
        for w in out.parameters():
            if w.dim() == 2:
                back = gguf.quants.dequantize(gguf.quants.quantize(w.numpy(), kind), kind)
                w.copy_(torch.from_numpy(back.reshape(w.shape).copy()))
    return out


def greedy(model, ids, count):
    ids = list(ids)
    with torch.no_grad():
        for _ in range(count):
            ids.append(int(model(input_ids=torch.tensor([ids])).logits[0, -1].argmax()))
    return ids[-count:]


def tokens_of(program, tokenizer, text):
    out = subprocess.run([program, "tokenizer", "encode", "--tokenizer", tokenizer, "--null", "-"],
                         input=text.encode() + b"\0", check=True, capture_output=True).stdout
    return [int(word) for word in out.split()]


def run_server(path, prompt, count):
    """With xllamacpp: the IDs of TEXT, and the tokens generated from the prompt."""
    params = xllamacpp.CommonParams()
    params.model.path = path
    params.n_ctx, params.warmup, params.n_gpu_layers = 256, False, 0
    params.cpuparams.n_threads = 2
    params.cache_type_k = params.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
    params.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    server = xllamacpp.Server(params)
    ids = post(server, "/tokenize", content=TEXT, add_special=False, parse_special=False)["tokens"]
    return ids, post(server, "/completion", prompt=prompt, n_predict=count, temperature=0, top_k=1,
                    return_tokens=True, ignore_eos=False, cache_prompt=False)["tokens"]


def run_library(path, prompt, count):
    """The same with llama-cpp-python."""
    model = llama_cpp.Llama(path, n_ctx=256, n_threads=1, n_gpu_layers=0, flash_attn=False,
                            type_k=llama_cpp.GGML_TYPE_F32, type_v=llama_cpp.GGML_TYPE_F32,
                            verbose=False)
    ids = model.tokenize(TEXT.encode(), add_bos=False, special=False)
    generated = model.generate(prompt, temp=0.0, top_k=1, repeat_penalty=1.0)
    return ids, [next(generated) for _ in range(count)]


def check_llama_cpp(path, program, tokenizer, model, exact):
    prompt, count = [i % model.config.vocab_size for i in range(3, 400, 17)], 24
    ids = tokens_of(program, tokenizer, TEXT)
    print(os.path.basename(tokenizer), end=", ")
    got, generated = (run_library if "llama_cpp" in globals() else run_server)(path, prompt, count)
    assert got == ids, (path, got, ids)
    want = greedy(model, prompt, count)
    same = sum(a == b for a, b in zip(generated, want))
    print(f"{os.path.basename(path)}: {len(ids)} IDs of a text equal; "
          f"{same} of {len(generated)} greedy tokens")
    assert generated and (not exact or generated == want[:len(generated)]), (generated, want)


def main(program, more):
    with tempfile.TemporaryDirectory() as root:
        more += others(root, [name for name in [TOKENIZERS[2]] + more if is_sentencepiece(name)])
        for number, tokenizer in enumerate(TOKENIZERS + more):
            base = os.path.join(root, str(number))
            out = subprocess.run([program, "tokenizer", "show", "--tokenizer", tokenizer, "--json"],
                                 check=True, capture_output=True).stdout
            vocab = json.loads(out)["vocab_size"]
            model = make(vocab + 3, tied=number % 2 == 1, scaled=number % 3 != 1,
                         qk_norm=number == 1)
            model.save_pretrained(base)
            name = "tokenizer.json" if tokenizer.endswith(".json") else "tokenizer.model"
            shutil.copy(tokenizer, os.path.join(base, name))
            pattern = os.path.join(os.path.dirname(tokenizer), "tokenizer_config.json")
            if os.path.exists(pattern):  # of a tiktoken file
                shutil.copy(pattern, base)
            for dtype in TYPES:
                path = f"{base}-{dtype}.gguf"
                subprocess.run([program, "convert", base, path, "--to", "gguf", "--dtype", dtype],
                               check=True, stdout=subprocess.DEVNULL)
                check_tensors(path, model, dtype)
                check_llama_cpp(path, program, tokenizer, rounded(model, dtype), dtype == "f32")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
