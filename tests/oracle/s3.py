# s3.py FOLDER PROGRAM -- checks s3:// paths and checkpoint copies against moto's S3 server and boto3.
#
# Requires: pip install 'moto[s3,server]' boto3 (tested with moto 5.2.5).  FOLDER must not exist, and is
# kept.
# SPDX-License-Identifier: Apache-2.0
"""Starts moto's server on 127.0.0.1 and: (1) boto3 uploads data and a tokenizer, and the program
fetches them and trains from them; (2) the program copies checkpoints, and boto3 finds every file of
each copy with the same bytes, large ones in parts, each copy with its manifest last; (3) a run with an
empty folder resumes from the newest copy that has a manifest, and ends with the bytes of a run that
was never interrupted; (4) no output and no file of a run has a credential; (5) with the same variables
and files, the program signs with the credentials that botocore's provider chain returns, for keys, web
identity, credential_process, containers and EC2 instances, in the same order.

moto does not check signatures; (5) does, with botocore, and so do the C tests, with an implementation
of their own."""
import hashlib
import http.server
import json
import logging
import os
import pathlib
import shlex
import subprocess
import sys
import threading
import urllib.parse

import boto3
import botocore.auth
import botocore.awsrequest
import botocore.credentials
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

# 5. Credentials from every place, as botocore finds them.
END = "2099-01-31T12:00:00Z"
seen = []  # requests to the store
IMDS_SESSION, CONTAINER_TOKEN, JWT = "imds session==", "Bearer container+token", "eyJ.web.identity"


def document(name, **more):
    return json.dumps({"Code": "Success", "AccessKeyId": f"AKIA{name}", "SecretAccessKey": f"s+/{name}",
                       "Token": f"token/{name}==", "Expiration": END, **more})


class Services(http.server.BaseHTTPRequestHandler):
    """IMDSv2, a container's endpoint, STS, and a store of one object."""

    def log_message(self, *_):
        pass

    def answer(self, status, text=""):
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.send_header("ETag", '"etag"')
        self.end_headers()
        self.wfile.write(text.encode())

    def do_PUT(self):
        known = self.path == "/latest/api/token" and self.headers["x-aws-ec2-metadata-token-ttl-seconds"]
        self.answer(200 if known else 404, IMDS_SESSION if known else "")

    def do_POST(self):
        form = dict(urllib.parse.parse_qsl(self.rfile.read(int(self.headers["Content-Length"])).decode()))
        assert form["Action"] == "AssumeRoleWithWebIdentity" and form["WebIdentityToken"] == JWT, form
        assert form["RoleArn"] == "arn:aws:iam::123456789012:role/r" and form["Version"] == "2011-06-15"
        name = "AssumeRoleWithWebIdentity"
        keys = {"AccessKeyId": "AKIAWEB", "SecretAccessKey": "s+/WEB", "SessionToken": "token/WEB==",
                "Expiration": END}
        self.answer(200, f"<{name}Response><{name}Result><Credentials>"
                    + "".join(f"<{k}>{v}</{k}>" for k, v in keys.items())
                    + f"</Credentials></{name}Result></{name}Response>")

    def do_GET(self):
        role = "/latest/meta-data/iam/security-credentials/"
        if self.path.startswith(role):
            if self.headers["x-aws-ec2-metadata-token"] != IMDS_SESSION:
                return self.answer(401)
            known = {role: "oracle.role", role + "oracle.role": document("INSTANCE")}
            return self.answer(200 if self.path in known else 404, known.get(self.path, ""))
        if self.path == "/container?id=1":
            known = self.headers["Authorization"] == CONTAINER_TOKEN
            return self.answer(200 if known else 401, document("CONTAINER") if known else "")
        seen.append((self.path, dict(self.headers)))
        if "list-type" in self.path:
            return self.answer(200, "<ListBucketResult><Contents><Key>a.txt</Key><Size>4</Size><ETag>"
                               "&quot;etag&quot;</ETag></Contents></ListBucketResult>")
        return self.answer(200, "text")


services = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Services)
threading.Thread(target=services.serve_forever, daemon=True).start()
url = f"http://127.0.0.1:{services.server_port}"


def of_botocore(variables):
    code = ("import botocore.session, json; c = botocore.session.Session().get_credentials();"
            "print(json.dumps(c and c.get_frozen_credentials()))")
    ran = subprocess.run([sys.executable, "-c", code], env=variables, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


def check_signed(path, headers, keys):
    """The request has botocore's key ID, token and signature."""
    if keys is None:
        assert "Authorization" not in headers, headers
        return
    credentials = botocore.credentials.Credentials(*keys[:3])
    auth = botocore.auth.S3SigV4Auth(credentials, "s3", "us-east-1")
    lower = {k.lower(): v for k, v in headers.items()}
    fields = dict(f.strip().split("=", 1) for f in lower["authorization"].partition(" ")[2].split(","))
    request = botocore.awsrequest.AWSRequest(
        method="GET", url=url + path, headers={k: lower[k] for k in fields["SignedHeaders"].split(";")})
    request.context["timestamp"] = lower["x-amz-date"]
    signature = auth.signature(auth.string_to_sign(request, auth.canonical_request(request)), request)
    assert fields["Credential"].partition("/")[0] == keys[0], (fields, keys)
    assert lower.get("x-amz-security-token") == keys[2], (lower, keys)
    assert fields["Signature"] == signature, path


aws = folder / "aws"
aws.mkdir()
(aws / "jwt").write_text(JWT)
(aws / "token").write_text(CONTAINER_TOKEN)
(aws / "output.json").write_text(document("PROCESS", Version=1, SessionToken="token/PROCESS=="))
KEYS = "aws_access_key_id = AKIA{0}\naws_secret_access_key = s+/{0}\naws_session_token = token/{0}==\n"
PROCESS = f"credential_process = cat {shlex.quote(str(aws / 'output.json'))}\n"
config_file, credentials_file = aws / "config", aws / "credentials"
base = {"PATH": os.environ["PATH"], "HOME": str(folder), "AWS_CONFIG_FILE": str(config_file), "no_proxy": "*",
        "AWS_SHARED_CREDENTIALS_FILE": str(credentials_file), "AWS_REGION": "us-east-1",
        "AWS_DEFAULT_REGION": "us-east-1", "AWS_ENDPOINT_URL_S3": url, "AWS_ENDPOINT_URL_STS": url}
places = [  # in botocore's order: variables, ~/.aws/credentials, ~/.aws/config
    ("ENV", dict(AWS_ACCESS_KEY_ID="AKIAENV", AWS_SECRET_ACCESS_KEY="s+/ENV", AWS_SESSION_TOKEN="token/ENV=="),
     "", ""),
    ("WEB", dict(AWS_WEB_IDENTITY_TOKEN_FILE=str(aws / "jwt"),
                 AWS_ROLE_ARN="arn:aws:iam::123456789012:role/r"), "", ""),
    ("SHARED", {}, KEYS.format("SHARED"), ""),
    ("PROCESS", {}, "", PROCESS),
    ("CONFIG", {}, "", KEYS.format("CONFIG")),
    ("CONTAINER", dict(AWS_CONTAINER_CREDENTIALS_FULL_URI=url + "/container?id=1",
                       AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE=str(aws / "token"),
                       AWS_CONTAINER_AUTHORIZATION_TOKEN="not this"), "", ""),
    ("INSTANCE", dict(AWS_EC2_METADATA_SERVICE_ENDPOINT=url), "", ""),
    (None, dict(AWS_EC2_METADATA_DISABLED="true"), "", ""),
]


def check_place(name, chosen):
    global environment
    environment = dict(base, LLAMERO_S3_CACHE=str(aws / f"cache-{name}-{len(chosen)}"))
    for _, variables, _, _ in chosen:
        environment.update(variables)
    credentials_file.write_text("[default]\n" + "".join(c for _, _, c, _ in chosen))
    config_file.write_text("[default]\n" + "".join(c for _, _, _, c in chosen))
    seen.clear()
    keys = of_botocore(environment)
    assert (keys and keys[0]) == (name and f"AKIA{name}"), (name, keys)
    assert not seen
    messages = run("fetch", f"s3://{name or 'none'}-bucket/a.txt".lower())
    assert len(seen) == 2, seen
    for path, headers in seen:
        check_signed(path, headers, keys)
    for secret in ("s+/", "token/", IMDS_SESSION, CONTAINER_TOKEN, JWT):
        assert secret not in messages.stdout + messages.stderr, (name, secret)


for i, place in enumerate(places):
    others = [p for p in places[i + 1:] if p[0]]  # the last entry disables the one before it
    check_place(place[0], [place])
    if others:
        check_place(place[0], [place, *others])
services.shutdown()
print(f"signed as botocore does with credentials from {len(places) - 1} places, and without any")
