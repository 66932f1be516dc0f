#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs lm-evaluation-harness and trl on exports of every kind of tokenizer, offline.

    python tests/oracle/export_tools.py PROGRAM TOKENIZER...

TOKENIZER is "bytes" or a file (see public_tokenizers.py).  Trains one step of a tiny model with each and converts it to
a Hugging Face folder.  lm-eval evaluates three tasks on it (multiple choice, rolling log-likelihood, generation), whose
scores must be finite; trl's SFTTrainer trains two steps on texts and on conversations, saves, and the saved
tokenizer must encode texts as the export does.  Prints a table; fails if anything fails.

    pip install torch transformers lm_eval trl sentencepiece    (2.15.0, 5.24.0, 0.4.13, 1.16.0)
"""
import json
import logging
import math
import os
import pathlib
import subprocess
import sys
import tempfile

os.environ |= {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}

import datasets
import lm_eval
import torch
import transformers
import trl
from lm_eval.models.huggingface import HFLM

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from public_tokenizers import export

ROWS = [{"question": f"The king {verb} of the caf\u00e9", "choices": [" speaks.", " \u96ea is", " of the"], "answer": 0,
         "text": f"The king {verb}; it's 12 o'clock.\n\n  Then\u00a0he speaks."} for verb in ("now", "then", "here")]
CHAT = ("{% for m in messages %}{{ m['role'] + ': ' + m['content'] + '\\n' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ 'assistant: ' }}{% endif %}")


def tasks(folder):
    path = pathlib.Path(folder, "rows.json")
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    common = {"dataset_path": "json", "dataset_kwargs": {"data_files": {"test": str(path)}}, "test_split": "test"}
    return [
        dict(common, task="choices", output_type="multiple_choice", doc_to_text="{{question}}",
             doc_to_choice="choices", doc_to_target="answer", metric_list=[{"metric": "acc"}]),
        dict(common, task="rolling", output_type="loglikelihood_rolling", doc_to_text="", doc_to_target="{{text}}",
             metric_list=[{"metric": "bits_per_byte"}]),
        dict(common, task="generation", output_type="generate_until", doc_to_text="{{question}}", doc_to_target="answer",
             generation_kwargs={"until": ["\n"], "max_gen_toks": 8}, metric_list=[{"metric": "exact_match"}]),
    ]


def run_lm_eval(folder, scratch):
    lm = HFLM(pretrained=str(folder), dtype="float32", device="cpu", batch_size=2)
    results = lm_eval.simple_evaluate(model=lm, tasks=tasks(scratch), bootstrap_iters=0)["results"]
    scores = [next(v for k, v in results[t].items() if "," in k and "stderr" not in k)
              for t in ("choices", "rolling", "generation")]
    assert all(math.isfinite(score) for score in scores), scores
    return " ".join(f"{score:.3g}" for score in scores)


def run_trl(folder, scratch):
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    tokenizer.chat_template = tokenizer.chat_template or CHAT
    texts = [{"text": row["text"]} for row in ROWS]
    talks = [{"messages": [{"role": "user", "content": row["question"]}, {"role": "assistant", "content": row["text"]}]}
             for row in ROWS]
    losses = []
    for name, rows in (("texts", texts), ("talks", talks)):
        out = os.path.join(scratch, name)
        config = trl.SFTConfig(output_dir=out, max_steps=2, per_device_train_batch_size=2, max_length=64, use_cpu=True,
                               bf16=False, gradient_checkpointing=False, report_to=[], logging_steps=1,
                               save_strategy="no", disable_tqdm=True)
        model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
        trainer = trl.SFTTrainer(model=model, args=config, train_dataset=datasets.Dataset.from_list(rows),
                                 processing_class=tokenizer)
        losses.append(trainer.train().training_loss)
        trainer.save_model(out)
        again = transformers.AutoTokenizer.from_pretrained(out)
        plain = transformers.AutoTokenizer.from_pretrained(folder)
        # save_pretrained of SentencePieceBackend forgets that the export adds BOS
        lost = 1 if type(plain).__name__ == "SentencePieceBackend" else 0
        for row in ROWS:
            assert again(row["text"]).input_ids == plain(row["text"]).input_ids[lost:], "the saved tokenizer differs"
    assert all(math.isfinite(loss) and loss > 0 for loss in losses), losses
    return " ".join(f"{loss:.3f}" for loss in losses)


def attempt(run, *arguments):
    try:
        return True, run(*arguments)
    except Exception as error:
        return False, f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"


def main():
    program, rows = os.path.abspath(sys.argv[1]), []
    for source in sys.argv[2:]:
        with tempfile.TemporaryDirectory() as scratch:
            step, folder = export(program, source, pathlib.Path(scratch)), os.path.join(scratch, "hf")
            subprocess.run([program, "convert", step, folder, "--to", "hf"], check=True, stderr=subprocess.DEVNULL)
            rows.append((os.path.basename(source), attempt(run_lm_eval, folder, scratch),
                         attempt(run_trl, folder, scratch)))
            print(*rows[-1], flush=True)
    print(f"\n{'tokenizer':40} {'lm-eval':24} trl")
    for name, (_, evaluated), (_, trained) in rows:
        print(f"{name:40} {evaluated:24} {trained}")
    sys.exit(not all(a[0] and b[0] for _, a, b in rows))


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    main()
