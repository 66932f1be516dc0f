# push.py FOLDER PROGRAM -- compares llamero push with huggingface_hub's uploads, on a local server.
#
# Requires: pip install huggingface_hub (tested with 2.4.0).  FOLDER must not exist, and is kept.
# SPDX-License-Identifier: Apache-2.0
"""Serves the upload side of the Hub as huggingface_hub 2.4.0 uses it, and lets both programs upload
the same folder: by basic and by multipart LFS transfers, and again with nothing to upload.  Their
requests must be the same, apart from the user agent and what the Hub does not read, and so must the
repository be."""
import base64
import hashlib
import http.server
import json
import os
import pathlib
import subprocess
import sys
import threading

folder, program = pathlib.Path(sys.argv[1]), sys.argv[2]
model = folder / "model"
model.mkdir(parents=True)
FILES = {"config.json": b'{"model_type": "llama"}', "README.md": b"# A model\n",
         "model-00001-of-00002.safetensors": bytes(range(256)) * 300,
         "model-00002-of-00002.safetensors": bytes(range(255)) * 300,
         "model.safetensors.index.json": b"{}", "tokenizer.json": "{\"\u00e9\": 1}".encode() * 100}
for name, data in FILES.items():
    (model / name).write_bytes(data)
TOKEN = "hf_oracle"
state = {}


def reset(chunk):
    state.clear()
    state.update(chunk=chunk, objects={}, repo={}, requests=[], created=False)


def blob(data):
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


class Hub(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def answer(self, status, body=b"", **headers):
        body = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        self.answer(200, {"id": "org/name", "sha": "0" * 40, "private": True, "siblings": []})

    def do_PUT(self):
        data = self.rfile.read(int(self.headers["Content-Length"]))
        _, oid, part = self.path.split("?")[0].strip("/").split("/")
        assert "Authorization" not in self.headers
        state["objects"].setdefault(oid, {})[int(part)] = data
        state["requests"].append(("PUT", oid, int(part), len(data)))
        self.answer(200, ETag=f'"{part}"')

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        path, kind = self.path.split("?")[0], self.headers["Content-Type"].split(";")[0]
        lines = [json.loads(line) for line in body.splitlines()] if "ndjson" in kind else json.loads(body)
        if path != "/complete":  # its URL is signed
            assert self.headers["Authorization"] == f"Bearer {TOKEN}"
        state["requests"].append((path, kind, lines))
        if path == "/api/repos/create":
            status = 409 if state["created"] else 200
            state["created"] = True
            return self.answer(status, {"url": f"{endpoint}/org/name", "name": "org/name"})
        if path.endswith("/preupload/main"):
            return self.answer(200, {"files": [
                {"path": f["path"], "shouldIgnore": False, "oid": self.oid(f["path"]),
                 "uploadMode": "lfs" if f["path"].endswith(".safetensors") else "regular"}
                for f in lines["files"]]})
        if path.endswith("/objects/batch"):
            return self.answer(200, self.batch(lines), **{"Content-Type": kind})
        if path == "/complete":
            data = b"".join(state["objects"][lines["oid"]][p["partNumber"]] for p in lines["parts"])
            assert [p["etag"] for p in lines["parts"]] == [f'"{p["partNumber"]}"' for p in lines["parts"]]
            state["objects"][lines["oid"]] = {1: data}
            return self.answer(200, {})
        if path == "/verify":
            data = state["objects"][lines["oid"]][1]
            assert hashlib.sha256(data).hexdigest() == lines["oid"] and len(data) == lines["size"]
            return self.answer(200, {})
        if path.endswith("/commit/main"):
            for line in lines[1:]:
                value = line["value"]
                state["repo"][value["path"]] = (state["objects"][value["oid"]][1]
                                                if line["key"] == "lfsFile"
                                                else base64.b64decode(value["content"]))
            return self.answer(200, {"commitUrl": f"{endpoint}/org/name/commit/{'0' * 40}",
                                     "commitOid": "0" * 40, "success": True})
        if path.endswith("validate-yaml"):
            return self.answer(200, {"errors": [], "warnings": []})
        self.answer(404, {"error": path})

    def oid(self, path):
        data = state["repo"].get(path)
        if data is None:
            return None
        return hashlib.sha256(data).hexdigest() if path.endswith(".safetensors") else blob(data)

    def batch(self, lines):
        objects = []
        for o in lines["objects"]:
            entry = {"oid": o["oid"], "size": o["size"]}
            if o["oid"] not in state["objects"]:
                upload = {"href": f"{endpoint}/upload/{o['oid']}/1?signed=1"}
                if state["chunk"]:
                    count = -(-o["size"] // state["chunk"])
                    upload = {"href": f"{endpoint}/complete?signed=1", "header": {
                        "chunk_size": str(state["chunk"]),
                        **{f"{i + 1:05}": f"{endpoint}/upload/{o['oid']}/{i + 1}?signed=1"
                           for i in range(count)}}}
                entry["actions"] = {"upload": upload, "verify": {"href": f"{endpoint}/verify"}}
            objects.append(entry)
        return {"transfer": "multipart" if state["chunk"] else "basic", "objects": objects}


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hub)
threading.Thread(target=server.serve_forever, daemon=True).start()
endpoint = f"http://127.0.0.1:{server.server_port}"
environment = dict(os.environ, HF_ENDPOINT=endpoint, HF_HOME=str(folder / "home"), HF_TOKEN=TOKEN,
                   HF_HUB_DISABLE_XET="1", HF_HUB_DISABLE_TELEMETRY="1", no_proxy="*")
UPLOAD = """
import sys, huggingface_hub as h
api = h.HfApi()
api.create_repo("org/name", private=True, exist_ok=True)
print(api.upload_folder(repo_id="org/name", folder_path=sys.argv[1], commit_message="a message"))
"""
THEIRS = [sys.executable, "-c", UPLOAD, str(model)]
OURS = [program, "push", "--create", "--private", "--message", "a message", str(model),
        "hf://org/name"]


def run(command):
    state["requests"] = []
    ran = subprocess.run(command, env=environment, capture_output=True, text=True)
    if ran.returncode:
        sys.exit(f"{command}: {ran.stdout}{ran.stderr}")
    assert TOKEN not in ran.stdout + ran.stderr
    return normal(state["requests"])


def normal(requests):
    """Batches of several objects become one a file, files of a list are sorted, and fields that the
    two clients may order or add differently are dropped."""
    out = []
    for r in requests:
        if r[0] == "PUT":
            out.append(r)
            continue
        path, kind, body = r
        if path.endswith("validate-yaml"):
            continue
        if path.endswith("create"):
            private = body.get("private", body.get("visibility") == "private")  # an older, a newer key
            out.append((path, kind, body["organization"], body["name"], private))
        elif path.endswith("preupload/main"):
            out += [(path, kind, f) for f in body["files"]]
        elif path.endswith("batch"):
            rest = {k: v for k, v in body.items() if k != "objects"}
            out += [(path, kind, rest | {"object": o}) for o in body["objects"]]
        elif path.endswith("commit/main"):
            out += [(path, kind, line) for line in body]
        else:
            out.append((path, kind, body))
    return sorted(json.dumps(r, sort_keys=True) for r in out)


for chunk in (0, 30000):
    uploads = []
    for command in (THEIRS, OURS):
        reset(chunk)
        uploads.append(run(command))
        assert state["repo"] == FILES, command
        uploads.append(run(command))  # nothing has changed
    # When nothing has changed, huggingface_hub still asks whether the Hub has the large files.
    unchanged = [[line for line in requests if "objects/batch" not in line]
                 for requests in uploads[1::2]]
    assert uploads[3] == unchanged[1]
    for a, b in (uploads[0::2], unchanged):
        if a != b:
            for line in sorted(set(a) ^ set(b)):
                print("theirs" if line in a else "ours  ", line[:300])
            sys.exit("the requests differ")
    print(f"{len(uploads[0])} requests are the same, {'in parts' if chunk else 'whole'}")
