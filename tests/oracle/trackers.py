# trackers.py FOLDER PROGRAM -- compares what llamero writes for W&B, MLflow and TensorBoard with
# what these programs read.
#
# Requires: pip install wandb mlflow tensorboard (tested with 0.31.0, 3.17.2 and 2.21.0), in a venv
# of their own: mlflow requires pyarrow < 26, parquet.py has 26.  FOLDER must not exist, and is kept.
# SPDX-License-Identifier: Apache-2.0
"""Trains a tiny model with all three enabled, stops it between checkpoints, resumes it, and reads
the run with each program.  `wandb sync` uploads it to a stub of W&B's server on this machine, which
keeps the rows.  All must have the steps and losses of metrics.jsonl, once each."""
import gzip
import http.server
import json
import os
import pathlib
import shutil
import subprocess
import sys
import threading

folder, program = pathlib.Path(sys.argv[1]).absolute(), os.path.abspath(sys.argv[2])
folder.mkdir(parents=True)
run = folder / "run"
(folder / "text.txt").write_text("".join(f"{i} llamas walk over {i * i} hills.\n" for i in range(5000)))
(folder / "tiny.toml").write_text(f"""
[job]
dump_folder = "{run}"
[model]
name = "llama3"
dim = 32
n_layers = 1
n_heads = 2
n_kv_heads = 2
ffn_hidden = 64
[data]
tokenizer = "bytes"
validation_share = 0.1
[training]
dataset_path = "{folder}/text.txt"
local_batch_size = 2
seq_len = 32
steps = 30
[lr_scheduler]
total_steps = 30
[metrics]
log_freq = 1
enable_tensorboard = true
enable_wandb = true
wandb_project = "hills"
enable_mlflow = true
mlflow_experiment = "hills"
[validation]
enable = true
freq = 10
steps = 2
[checkpoint]
enable = true
interval = 10
""")
environment = {k: v for k, v in os.environ.items() if not k.startswith(("WANDB_", "MLFLOW_"))}


def train(*settings):
    command = [program, "train", str(folder / "tiny.toml"), *settings]
    return subprocess.run(command, env=environment, stderr=subprocess.PIPE, text=True, check=False)


first = train("training.steps=24", "checkpoint.keep_latest_k=0")
assert first.returncode == 0, first.stderr
shutil.rmtree(run / "checkpoint" / "step-24")  # as if it had been killed after step 24
second = train()
assert second.returncode == 0, second.stderr

losses, validation = {}, {}
for line in (run / "metrics.jsonl").read_text().splitlines():
    row = json.loads(line)
    if "loss" in row:
        losses[row["step"]] = row["loss"]
    if "validation_loss" in row:
        validation[row["step"]] = row["validation_loss"]
assert sorted(losses) == list(range(1, 31)) and sorted(validation) == [10, 20, 30], validation

# W&B
state = {"rows": {}, "summary": {}, "upserts": [], "done": None}


class Stub(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        if self.headers.get("content-encoding") == "gzip":
            body = gzip.decompress(body)
        answer = {}
        if "file_stream" in self.path:
            sent = json.loads(body)
            for name, part in sent.get("files", {}).items():
                rows = [json.loads(r) for r in part["content"]]
                if name == "wandb-history.jsonl":
                    state["rows"].update({part["offset"] + i: r for i, r in enumerate(rows)})
                elif name == "wandb-summary.json":
                    state["summary"] = rows[-1]
            state["done"] = sent.get("exitcode", state["done"])
        else:
            query = json.loads(body or b"{}")
            answer = {"data": {}}
            if "UpsertBucket" in query.get("query", ""):
                state["upserts"].append(query["variables"])
                project = {"id": "p", "name": "hills", "entity": {"id": "e", "name": "me"}}
                bucket = {"id": "b", "name": query["variables"]["name"], "displayName": "d",
                          "description": "", "config": "{}", "sweepName": None,
                          "historyLineCount": 0, "project": project}
                answer = {"data": {"upsertBucket": {"bucket": bucket, "inserted": True}}}
            elif "CreateRunFiles" in query.get("query", ""):
                files = {"runID": "b", "uploadHeaders": [], "files": []}
                answer = {"data": {"createRunFiles": files}}
        text = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    do_GET = do_PUT = do_POST

    def log_message(self, *args):
        pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Stub)
threading.Thread(target=server.serve_forever, daemon=True).start()
folders = list((run / "wandb").iterdir())
assert len(folders) == 1, folders
wandb = pathlib.Path(sys.executable).parent / "wandb"
subprocess.run([wandb, "sync", folders[0]], check=True, cwd=folder, timeout=120, env={
    **environment, "WANDB_BASE_URL": f"http://127.0.0.1:{server.server_port}",
    "WANDB_API_KEY": "a" * 40, "WANDB_ERROR_REPORTING": "false"})
rows = [state["rows"][i] for i in sorted(state["rows"])]
assert sorted(state["rows"]) == list(range(len(rows)))
assert [r["_step"] for r in rows] == list(range(1, 31)), [r["_step"] for r in rows]
assert {r["_step"]: r["loss_metrics/global_avg_loss"] for r in rows} == losses
assert {r["_step"]: r["validation_metrics/loss"] for r in rows
        if "validation_metrics/loss" in r} == validation
assert all(a["_timestamp"] <= b["_timestamp"] for a, b in zip(rows, rows[1:]))
assert state["summary"]["loss_metrics/global_avg_loss"] == losses[30] and state["done"] == 0
upsert = state["upserts"][0]
assert upsert["project"] == "hills" and upsert["displayName"] == "run", upsert
assert json.loads(upsert["config"])["model"]["value"]["dim"] == 32
print("W&B:", len(rows), "rows")

# MLflow
os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
import mlflow  # noqa: E402

mlflow.set_tracking_uri((run / "mlruns").as_uri())
found = mlflow.search_runs(experiment_names=["hills"])
assert len(found) == 1 and found.status[0] == "FINISHED" and found["params.model.dim"][0] == "32"
client = mlflow.MlflowClient()
for key, want in (("loss_metrics/global_avg_loss", losses), ("validation_metrics/loss", validation)):
    history = client.get_metric_history(found.run_id[0], key)
    assert [(m.step, m.value) for m in history] == sorted(want.items()), key
assert client.get_run(found.run_id[0]).info.run_name == "run"
print("MLflow:", len(client.get_run(found.run_id[0]).data.metrics), "metrics")

# TensorBoard, which stores float32
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator  # noqa: E402

events = EventAccumulator(str(run / "tb"))
events.Reload()
for key, want in (("loss_metrics/global_avg_loss", losses), ("validation_metrics/loss", validation)):
    got = {e.step: e.value for e in events.Scalars(key)}
    assert sorted(got) == sorted(want), (key, got)
    assert all(abs(got[s] - want[s]) <= 1e-6 * abs(want[s]) for s in want), key
print("TensorBoard:", len(events.Tags()["scalars"]), "scalars")
