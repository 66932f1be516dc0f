#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Scores a tiny Llama with lm-evaluation-harness, for `llamero eval --task`.

    pip install torch transformers datasets lm-eval
    python tests/oracle/lm_harness.py tests/tokenizer/data/small.json tests/infer/data/lm_eval

writes into the folder a model with random weights, and for each data set that llamero knows a file of
made-up questions in its columns; runs lm-eval's own task definitions on them, offline, with its hf
backend; and writes the log-likelihoods and scores to expected.json.  There are two runs, with a tokenizer
that adds BOS and with one that does not.  The third list of log-likelihoods is of a masked model: the same
weights without the causal mask, each token of a continuation masked in turn, computed by Transformers.
tests/infer/test_task_session.c reads the folder.  All is in float32, so the log-likelihoods must agree to
1e-4 and every choice must be the same."""
import json
import logging
import os
import random
import sys
import tempfile

os.environ.update(HF_HUB_OFFLINE="1", HF_DATASETS_OFFLINE="1", TOKENIZERS_PARALLELISM="false",
                  DISABLE_MULTIPROC="1")

import datasets
import lm_eval
import torch
import transformers
from lm_eval.models.huggingface import HFLM
from lm_eval.tasks._yaml_loader import load_yaml

ITEMS, CONTEXT = 16, 224
BOS, EOS, MASK = "<|begin_of_text|>", "<|end_of_text|>", "<|mask|>"
TASKS = {"arc": "arc/arc_easy.yaml", "hellaswag": "hellaswag/hellaswag.yaml", "piqa": "piqa/piqa.yaml",
         "winogrande": "winogrande/default.yaml", "mmlu": "mmlu/default/mmlu_high_school_physics.yaml",
         "lambada": "lambada/lambada_openai.yaml"}
WORDS = ("the a llama climbs over snow and rivers while an old driver counts bells Stones roll below "
         "Ann Tom they carry wool to market before rain caf\u00e9 na\u00efve \u00c9mile 12 7.5 it's don't because why? "
         "Slowly, (perhaps) grass grows; clouds \u96ea \u5c71 gather").split()


class Writer:
    def __init__(self, seed):
        self.random = random.Random(seed)

    def words(self, least, most):
        return " ".join(self.random.choice(WORDS) for _ in range(self.random.randint(least, most)))

    def number(self, count):
        return self.random.randrange(count)

    def arc(self, i):
        letters = ["A", "B", "C", "D", "E"] if i % 3 else ["1", "2", "3"]
        count = 3 if i % 3 == 0 else 4 + i % 2
        return {"id": f"made-up-{i}", "question": self.words(4, 20) + (" " if i == 4 else "?"),
                "choices": {"text": [self.words(1, 6) for _ in range(count)], "label": letters[:count]},
                "answerKey": letters[self.number(count)]}

    def hellaswag(self, i):
        a, b = self.words(5, 30), "" if i % 4 == 0 else self.words(1, 4)
        if i % 5 == 1:
            a = "[header] How to " + a + " [title] " + self.words(1, 4) + ".  [step] " + self.words(3, 9)
        if i == 2:
            a, b = " " + a + "\n", "\u00c9MILE and " + b
        endings = [self.words(2, 12) + (" [substeps] " + self.words(1, 3) if i % 5 == 1 else "")
                   for _ in range(4)]
        return {"ind": i, "activity_label": self.words(1, 2), "ctx_a": a, "ctx_b": b, "ctx": a + " " + b,
                "endings": endings, "source_id": f"made-up~{i}", "split": "val",
                "split_type": "indomain", "label": str(self.number(4))}

    def piqa(self, i):
        return {"goal": self.words(2, 12), "sol1": self.words(3, 15), "sol2": self.words(3, 15),
                "label": self.number(2)}

    def winogrande(self, i):
        end = "." if i == 3 else " " + self.words(2, 8) + "."
        return {"sentence": self.words(3, 12) + " _" + end, "option1": self.words(1, 2),
                "option2": self.words(1, 3), "answer": str(1 + self.number(2))}

    def mmlu(self, i):
        question = self.words(5, 20 + 3 * i)  # the last ones exceed the context
        return {"question": f" {question}\n" if i % 4 == 1 else question, "subject": "high_school_physics",
                "choices": [self.words(1, 4) for _ in range(4)], "answer": self.number(4)}

    def lambada(self, i):
        text = self.words(4, 25)
        return {"text": "alone" if i == 3 else text.replace(" ", "  ", 1) if i == 5 else
                text + " \n" + " end" if i == 6 else text}


def write_model(folder, tokenizer):
    config = transformers.LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=16, intermediate_size=24, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=CONTEXT, rms_norm_eps=1e-5,
        rope_parameters=dict(rope_type="default", rope_theta=1000.0), tie_word_embeddings=True,
        bos_token_id=tokenizer.bos_token_id, eos_token_id=tokenizer.eos_token_id, initializer_range=0.4)
    torch.manual_seed(11)
    model = transformers.LlamaForCausalLM(config).bfloat16()  # half the bytes; both sides use float32
    model.save_pretrained(folder)
    os.remove(os.path.join(folder, "generation_config.json"))
    return model.float()


def greedy_text(writer, model, tokenizer):
    """A text whose last word is one token, and the one that the model predicts."""
    while True:
        text = writer.words(4, 25)
        with torch.no_grad():
            token = model(**tokenizer(text, return_tensors="pt")).logits[0, -1].argmax().item()
        word = tokenizer.decode(token)
        if word[0] == " " and word[1:].isalpha() and tokenizer(text + word).input_ids[-1] == token:
            return text + word


def write_tasks(folder, model, tokenizer):
    for number, name in enumerate(TASKS):
        writer = Writer(number)
        rows = [getattr(writer, name)(i) for i in range(ITEMS)]
        if name == "lambada":
            for i in (1, 8, 9):
                rows[i]["text"] = greedy_text(writer, model, tokenizer)
        with open(os.path.join(folder, name + ".jsonl"), "w") as f:
            f.writelines(json.dumps(row) + "\n" for row in rows)
        if name in ("arc", "mmlu", "hellaswag"):
            datasets.Dataset.from_list(rows).to_parquet(os.path.join(folder, name + ".parquet"))


def own_definition(name, folder):
    """lm-eval's definition of a task, reading our file."""
    task = load_yaml(os.path.join(os.path.dirname(lm_eval.__file__), "tasks", TASKS[name]))
    split = task.get("test_split") or task["validation_split"]
    task.update(task=name, dataset_path="json", dataset_name=None, training_split=None,
                dataset_kwargs={"data_files": {split: os.path.join(folder, name + ".jsonl")}})
    task.update({"test_split": split, "validation_split": None, "fewshot_split": None})
    return {k: v for k, v in task.items() if v is not None and k not in ("tag", "task_alias")}


def run(folder, tokenizer):
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    lm = HFLM(pretrained=model, tokenizer=tokenizer, batch_size=4, device="cpu")
    assert lm.max_length == CONTEXT
    answer = lm_eval.simple_evaluate(model=lm, tasks=[own_definition(t, folder) for t in TASKS],
                                     log_samples=True, bootstrap_iters=10)
    tasks = {}
    for name in TASKS:
        samples = sorted(answer["samples"][name], key=lambda s: s["doc_id"])
        scores = {k.split(",")[0]: v for k, v in answer["results"][name].items() if "," in k}
        scores.pop("perplexity_stderr", None)  # from random samples
        tasks[name] = dict(
            {k: v for k, v in scores.items() if isinstance(v, float)},
            log_likelihoods=[[round(r[0][0], 6) for r in s["resps"]] for s in samples],
            greedy=[[bool(r[0][1]) for r in s["resps"]] for s in samples],
            acc_of_items=[s["acc"] for s in samples],
            acc_norm_of_items=[s["acc_norm"] for s in samples] if "acc_norm" in samples[0] else None)
    return tasks, answer["samples"], lm


def pseudo_log_likelihoods(lm, samples, mask):
    """Of each request, with every token attending to all others."""
    def score(context, continuation):
        if context == "":
            ids = lm.tok_encode(continuation, add_special_tokens=False)
            before = [lm.prefix_token_id]
        else:
            before, ids = lm._encode_pair(context, continuation)
        row = (before + ids)[-CONTEXT:]
        inputs = torch.tensor([row] * len(ids))
        places = torch.arange(len(row) - len(ids), len(row))
        labels = inputs[0, places]
        inputs[torch.arange(len(ids)), places] = mask
        see_all = torch.zeros(len(ids), 1, len(row), len(row))
        with torch.no_grad():
            logits = lm.model(input_ids=inputs, attention_mask=see_all).logits
        logits = torch.log_softmax(logits.double(), -1)
        return logits[torch.arange(len(ids)), places, labels].sum().item()

    return {name: [[round(score(*request), 6) for request in requests_of(s)]
                   for s in sorted(samples[name], key=lambda s: s["doc_id"])]
            for name in TASKS}


def requests_of(sample):
    """Its pairs of context and continuation."""
    arguments = sample["arguments"]
    if isinstance(arguments, dict):
        return [(a["arg_0"], a["arg_1"]) for a in arguments.values()]
    return [tuple(a[:2]) for a in arguments]


def main(tokenizer_file, folder):
    special = dict(bos_token=BOS, eos_token=EOS, mask_token=MASK)
    with_bos = transformers.PreTrainedTokenizerFast(tokenizer_file=tokenizer_file, **special)
    with tempfile.NamedTemporaryFile("w", suffix=".json") as f:
        json.dump(dict(json.load(open(tokenizer_file)), post_processor=None), f)
        f.flush()
        without = transformers.PreTrainedTokenizerFast(tokenizer_file=f.name, **special)
    assert with_bos("a").input_ids[0] == with_bos.bos_token_id != without("a").input_ids[0]
    os.makedirs(folder, exist_ok=True)
    write_tasks(folder, write_model(folder, with_bos), with_bos)
    expected, samples, lm = run(folder, with_bos)
    expected_without = run(folder, without)[0]
    masked = pseudo_log_likelihoods(lm, samples, with_bos.mask_token_id)
    answer = dict(script="tests/oracle/lm_harness.py", lm_eval=lm_eval.__version__,
                  transformers=transformers.__version__, torch=torch.__version__, bos=expected,
                  no_bos=expected_without, masked=masked)
    with open(os.path.join(folder, "expected.json"), "w") as f:
        f.write("{\n" + ",\n".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in answer.items()) + "\n}\n")
    for name in TASKS:
        print(name, {k: v for k, v in expected[name].items() if isinstance(v, float)})


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    main(*sys.argv[1:])
