#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Opens llamero's folders with Transformers and lm-evaluation-harness, offline.

    python tests/oracle/hf_tokenizer_folder.py PROGRAM TESTS TEXT [LLAMA3.model LLAMA2.model]

Trains two steps on TEXT with each kind of tokenizer: bytes, one trained here, a tokenizer.json, tiktoken's
and SentencePiece's .model (small ones of this repository, and those given).  In the checkpoint, and in
`convert --to hf` of it, AutoTokenizer must have the IDs of `PROGRAM tokenizer encode` on 3,000 strings, the
same BOS, EOS and number of tokens; `encode --tokenizer FOLDER` must give the source's IDs, for bytes that are
not UTF-8, too.  The float32 logits must be those of the test runner TESTS (build/tests/run) to 1e-4.  lm-eval
runs a small task.  A masked model must fill in a mask with Transformers' probabilities.  A folder of spike
tokens has no tokenizer, and AutoTokenizer must say so.

Text that spells a special token is plain text here, and that token in Transformers unless split_special_tokens
is set: the script checks both.

    pip install torch transformers lm_eval sentencepiece tiktoken    (5.23.0, 0.4.13)
"""
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile

os.environ |= {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}

import torch
import transformers

sys.path.insert(0, os.path.dirname(__file__))
import hf_folder
import sentences
import tokenizer as byte_level

DATA = "tests/tokenizer/data/"
PLAIN = ["", " ", "\n", "Hello world", " leading", "trailing ", "  two  spaces\n\n\tx", "don't WE'LL I'm 's",
         "12345678 0.5e-7", "\U0001F600\U0001F468\u200D\U0001F469\u200D\U0001F467 \U0001F1E6\U0001F1F7",
         "\u65e5\u672c\u8a9e\u306e \ud55c\uad6d\uc5b4 \u4e2d\u6587", "e\u0301 \u00e9 \ufb01 \u212b \u00bd",
         "a\u00a0b\u200bc\u3000d", "\u2581x \u2581", "int main(void) { return 0; }\r\n", "\u0001\u007f"]
BROKEN = [b"\xff", b"a\xc3", b"\xe2\x96 x", b"ok \xf0\x9f\x98", b"\xed\xa0\x80"]
SMALL = ["model.n_layers=1", "model.dim=32", "model.n_heads=2", "model.n_kv_heads=1", "model.ffn_hidden=48",
         "training.local_batch_size=1", "training.steps=2", "checkpoint.interval=2", "validation.enable=false",
         "metrics.log_freq=1"]


def run(*arguments):
    done = subprocess.run([str(a) for a in arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout


def strings():
    rng = random.Random(20260102)
    made = PLAIN + [byte_level.random_text(rng) for _ in range(1500)] + [sentences.mixed(rng) for _ in range(1500)]
    return [s.replace("\0", "") for s in made]


def names_of(hf):
    return sorted(set(hf.all_special_tokens))


def without_specials(texts, hf):
    """Texts that spell no special token, so that Transformers encodes them as plain text."""
    added = [t.content for t in hf.added_tokens_decoder.values()]
    return [t for t in texts if not any(name in t for name in added)]


def check_tokenizer(program, what, source, folder, texts):
    hf = transformers.AutoTokenizer.from_pretrained(folder)
    want = sentences.encode(program, source, texts)
    back = sentences.encode(program, folder, texts + BROKEN)
    assert back[:len(texts)] == want and back[len(texts):] == sentences.encode(program, source, BROKEN), what
    plain = set(without_specials(texts, hf))
    bad = 0
    for text, ids in zip(texts, want):
        got = hf(text, add_special_tokens=False).input_ids if text in plain else ids
        bad += got != ids
        if got != ids and bad < 4:
            print(f"  {text[:80]!r}\n  ours   {ids[:30]}\n  theirs {got[:30]}")
    split = transformers.AutoTokenizer.from_pretrained(folder, split_special_tokens=True)
    bos_and_eos = [json.load(open(os.path.join(folder, "generation_config.json"))).get(k)
                   for k in ("bos_token_id", "eos_token_id")]
    stops = bos_and_eos[1] if isinstance(bos_and_eos[1], list) else [bos_and_eos[1]]
    assert hf.bos_token_id == bos_and_eos[0] and hf.eos_token_id == stops[0], what
    assert hf("x").input_ids[0] == hf.bos_token_id and list(hf("x").keys()) == ["input_ids", "attention_mask"]
    for name in (hf.bos_token, hf.eos_token):
        ours, = sentences.encode(program, source, [f"a{name}b"])
        theirs = hf(f"a{name}b", add_special_tokens=False).input_ids
        assert hf.convert_tokens_to_ids(name) in theirs and hf.convert_tokens_to_ids(name) not in ours
        if hf.is_fast and "SentencePiece" not in what:
            assert split(f"a{name}b", add_special_tokens=False).input_ids == ours, (what, name)
    shown = json.loads(run(program, "tokenizer", "show", "--tokenizer", source, "--json"))
    assert len(hf) == shown["vocab_size"], (what, len(hf), shown)
    assert hf.bos_token_id == shown["bos"] and hf.eos_token_id == shown["eos"], shown
    print(f"{what}: {type(hf).__name__}, {len(hf)} tokens, bos {hf.bos_token} {hf.bos_token_id}, eos {hf.eos_token} "
          f"{stops}: {len(plain)} of {len(texts)} strings compared, {bad} differ")
    return bad


def check_logits(tests, folder):
    """Adds Transformers' logits to the folder, and compares them in the test runner."""
    hf_folder.write_expected(folder, folder)
    out = subprocess.run([tests, "transformers_folder"], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                         env=os.environ | {"LLAMERO_HF_FOLDER": folder})
    print("  " + ", ".join(l.strip() for l in out.stdout.split("\n") if "logits differ" in l))
    assert out.returncode == 0, out.stdout
    os.remove(os.path.join(folder, "expected.json"))
    config = transformers.AutoConfig.from_pretrained(folder)
    assert type(config).__name__ == "LlamaConfig"


def write_task(folder):
    rows = [dict(question=f"The king {verb}", choices=[" speaks.", " xyzzy", " of the"], answer=0)
            for verb in ("now", "then", "here", "still")]
    pathlib.Path(folder, "rows.json").write_text("".join(json.dumps(r) + "\n" for r in rows))
    pathlib.Path(folder, "kings.yaml").write_text(f"""task: kings
dataset_path: json
dataset_kwargs:
  data_files:
    test: {folder}/rows.json
test_split: test
output_type: multiple_choice
doc_to_text: "{{{{question}}}}"
doc_to_choice: choices
doc_to_target: answer
metric_list:
  - metric: acc
  - metric: acc_norm
""")


def check_lm_eval(folder, task):
    script = os.path.join(os.path.dirname(sys.executable), "lm_eval")
    out = run(script, "run", "--model", "hf", "--model_args", f"pretrained={folder},dtype=float32", "--tasks", "kings",
              "--include_path", task, "--device", "cpu", "--batch_size", "2")
    line = next(l for l in out.splitlines() if "kings" in l)
    print("  lm-eval: " + " ".join(line.split()))


def check_masked(program, recipe, root):
    dump, out = os.path.join(root, "masked"), os.path.join(root, "masked-hf")
    run(program, "train", recipe, f"job.dump_folder={dump}", "objective.name=masked", "objective.mask_token=<|mask|>",
        "objective.mask_probability=0.2", *SMALL)
    step = os.path.join(dump, "checkpoint", "step-2")
    run(program, "convert", step, out, "--to", "hf")
    text = "To be, or n<|mask|>t to be"
    for folder in (step, out):
        got = json.loads(run(program, "generate", folder, "--fill", text, "--temperature", "0", "--json",
                             "training.mixed_precision_param=float32", "data.bos=true", "data.eos=false"))
        hf = transformers.AutoTokenizer.from_pretrained(folder)
        assert hf.mask_token == "<|mask|>"
        for attention in ("eager", "sdpa"):
            model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32,
                                                                      attn_implementation=attention).eval()
            ids = hf(text, return_tensors="pt").input_ids
            at = ids[0].tolist().index(hf.mask_token_id)
            with torch.no_grad():
                logits = model(input_ids=ids, use_cache=False).logits[0, at]
                logits[hf.mask_token_id] = -torch.inf  # never filled in
            p = torch.softmax(logits.double(), 0)
            filled = got["filled"][0]
            off = abs(p[filled["id"]].item() - filled["probability"])
            print(f"masked, {attention}: is_causal {model.config.is_causal}, ID {p.argmax().item()} with probability "
                  f"{p.max().item():.6f}, difference {off:.1e}")
            assert p.argmax().item() == filled["id"] and off < 1e-6


def check_spikes(folder, root):
    """A folder as that of a run on .npy spike counts: config.json without token IDs, no tokenizer."""
    bare = os.path.join(root, "spikes")
    os.makedirs(bare)
    config = json.load(open(os.path.join(folder, "config.json"))) | dict(bos_token_id=None, eos_token_id=None)
    json.dump(config, open(os.path.join(bare, "config.json"), "w"))
    os.link(os.path.join(folder, "model.safetensors"), os.path.join(bare, "model.safetensors"))
    model = transformers.AutoModelForCausalLM.from_pretrained(bare)
    assert model.generation_config.bos_token_id is None and model.generation_config.eos_token_id is None
    try:
        transformers.AutoTokenizer.from_pretrained(bare)
    except ValueError as error:
        print("spike tokens: AutoTokenizer:", str(error).split("\n")[0])
        return
    raise AssertionError("AutoTokenizer opened a folder without a tokenizer")


def main(program, tests, text, *models):
    texts, bad = strings(), 0
    with tempfile.TemporaryDirectory() as root:
        path = lambda *parts: os.path.join(root, *parts)
        run(program, "tokenizer", "train", "--vocab-size", 2000, "--output", path("trained.json"), text)
        with open(path("tiny.toml"), "w") as f:
            f.write(run(program, "init", "tiny").replace('"text.txt"', json.dumps(os.path.abspath(text))))
        write_task(root)
        kinds = {"bytes": "bytes", "trained": path("trained.json"), "tokenizer.json": DATA + "small.json",
                 "tiktoken": DATA + "small/tokenizer.model", "SentencePiece": DATA + "sentence_bytes.model"}
        kinds |= {f"{name}, given": model for name, model in zip(("tiktoken", "SentencePiece"), models)}
        for number, (what, source) in enumerate(kinds.items()):
            dump, out = path(f"run{number}"), path(f"hf{number}")
            run(program, "train", path("tiny.toml"), f"job.dump_folder={dump}", f"data.tokenizer={source}", *SMALL)
            step = os.path.join(dump, "checkpoint", "step-2")
            run(program, "convert", step, out, "--to", "hf")
            for name, folder in (("checkpoint", step), ("convert", out)):
                bad += check_tokenizer(program, f"{what}, {name}", source, folder, texts)
                check_logits(tests, folder)
            check_lm_eval(out, root)
            if what == "bytes":
                check_spikes(out, root)
        check_masked(program, path("tiny.toml"), root)
    print("transformers", transformers.__version__, "torch", torch.__version__)
    return bad != 0


if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    sys.exit(main(*sys.argv[1:]))
