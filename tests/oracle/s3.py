# s3.py FOLDER PROGRAM -- checks s3:// paths and checkpoint copies against moto's S3 server and boto3.
#
# Requires: pip install 'moto[s3,server]' boto3 (tested with moto 5.2.5).  FOLDER must not exist, and is
# kept.
# SPDX-License-Identifier: Apache-2.0
"""Starts moto's server on 127.0.0.1 and: (1) boto3 uploads data and a tokenizer, and the program
fetches them and trains from them; (2) the program copies checkpoints, and boto3 finds every file of
each copy with the same bytes, large ones in parts, each copy with its manifest last; (3) a run with an
empty folder resumes from the newest copy that has a manifest, and ends with the bytes of a run that
was never interrupted; (4) no output and no file of a run has a credential.

moto does not check signatures; the C tests do, with an implementation of their own."""
import hashlib
import json
import logging
import os
import pathlib
import subprocess
import sys

import boto3
from moto.server import ThreadedMotoServer

folder, program = pathlib.Path(sys.argv[1]), sys.argv[2]
folder.mkdir(parents=True)
KEY, SECRET, SESSION = "AKIAORACLEEXAMPLE", "oracle/secret+example", "oracle-session-token=="
logging.getLogger("werkzeug").setLevel(logging.ERROR)
server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
host, port = server.get_host_and_port()
endpoint = f"http://{host}:{port}"
environment = dict(os.environ, AWS_ENDPOINT_URL=endpoint, AWS_ACCESS_KEY_ID=KEY, no_proxy="*",
                   AWS_SECRET_ACCESS_KEY=SECRET, AWS_SESSION_TOKEN=SESSION, AWS_REGION="us-east-1",
                   LLAMERO_S3_CACHE=str(folder / "cache"))
store = boto3.client("s3", endpoint_url=endpoint, aws_access_key_id=KEY,
                     aws_secret_access_key=SECRET, region_name="us-east-1")
store.create_bucket(Bucket="bucket")


def run(*command, code=0):
    ran = subprocess.run([program, *command], env=environment, capture_output=True, text=True)
    for secret in (KEY, SECRET, SESSION):
        assert secret not in ran.stdout + ran.stderr, f"{secret} in the output of {command}"
    if ran.returncode != code:
        sys.exit(f"{command}: exit code {ran.returncode}: {ran.stdout}{ran.stderr}")
    return ran


def keys(prefix):
    pages = store.get_paginator("list_objects_v2").paginate(Bucket="bucket", Prefix=prefix)
    return {o["Key"]: o for page in pages for o in page.get("Contents", [])}


def body(key):
    return store.get_object(Bucket="bucket", Key=key)["Body"].read()


# 1. Names that need escapes, more objects than a page lists, and a large one.
texts = {f"data/deep/part {i:04}+a=b&c.txt": f"document {i} of the corpus.\n" * 40
         for i in range(1100)}
texts["data/\u00e9t\u00e9.txt"] = "un texte\n" * 100
for key, text in texts.items():
    store.put_object(Bucket="bucket", Key=key, Body=text.encode())
store.put_object(Bucket="bucket", Key="data/deep/", Body=b"")
local = run("fetch", "s3://bucket/data/deep/*.txt", "s3://bucket/data/*.txt").stdout.splitlines()
for pattern, prefix in zip(local, ("data/deep/", "data/")):
    found = sorted(pathlib.Path(pattern).parent.glob("*.txt"))
    want = sorted(k for k in texts if k.rpartition("/")[0] + "/" == prefix)
    assert [f.name for f in found] == [k.rpartition("/")[2] for k in want], prefix
    assert all(f.read_text() == texts[k] for f, k in zip(found, want))
run("fetch", "s3://bucket/data/*.parquet", code=66)
run("fetch", "s3://none/data/*.txt", code=66)
print(f"fetched {len(texts)} objects")

# 2. Checkpoints of more than one part (16 MiB).
config = folder / "run.toml"
config.write_text("""
[model]
name = "llama3"
dim = 256
n_layers = 4
n_heads = 4
vocab_size = 8192
[training]
dataset_path = "s3://bucket/data/deep/*.txt"
seq_len = 64
local_batch_size = 2
[data]
tokenizer = "bytes"
[lr_scheduler]
total_steps = 8
warmup_steps = 1
[checkpoint]
enable = true
interval = 2
""")


def train(name, steps, *settings):
    ran = run("train", str(config), f"job.dump_folder={folder / name}", f"training.steps={steps}",
              *settings)
    for path in (folder / name).rglob("*"):
        data = path.read_bytes() if path.is_file() else b""
        assert not any(s.encode() in data for s in (KEY, SECRET, SESSION)), path
    return ran.stderr


copy = "checkpoint.copy_to=s3://bucket/runs/one"
train("first", 4, copy)


def check_copy(name, step):
    checkpoint = folder / name / "checkpoint" / f"step-{step}"
    copies, parts = keys(f"runs/one/step-{step}/"), 0
    names = {entry["name"] for entry in json.loads((checkpoint / "manifest.json").read_text())["files"]}
    assert set(copies) == {f"runs/one/step-{step}/{n}" for n in names | {"manifest.json"}}
    for key, o in copies.items():
        assert body(key) == (checkpoint / key.rpartition("/")[2]).read_bytes(), key
        parts += "-" in o["ETag"]
    manifest = copies[f"runs/one/step-{step}/manifest.json"]
    assert all(o["LastModified"] <= manifest["LastModified"] for o in copies.values())
    assert not store.list_multipart_uploads(Bucket="bucket").get("Uploads")
    return parts


assert check_copy("first", 4) > 0, "no file was uploaded in parts"
print("copied a checkpoint, large files in parts")

# 3. A copy without a manifest, and one that is damaged, are not resumed from.
store.put_object(Bucket="bucket", Key="runs/one/step-100/config.json", Body=b"{}")
for key in keys("runs/one/step-4/"):
    other = key.replace("step-4", "step-90")
    store.put_object(Bucket="bucket", Key=other, Body=body(key))
messages = train("second", 8, copy)
assert "skipping the copy of step-90" in messages and "fetching step-4" in messages, messages
assert "step-100" not in messages
check_copy("second", 8)
train("straight", 8)


def digests(name):
    checkpoint = folder / name / "checkpoint" / "step-8"
    return {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in checkpoint.glob("*.safetensors")}


assert digests("second") == digests("straight")
print("resumed from the copy, bit for bit")

# 4. A copy as a model.
run("eval", "s3://bucket/runs/one/step-8", "s3://bucket/data/*.txt", "--tokenizer", "bytes")
print("evaluated the copy")
server.stop()
