# hub.py FOLDER PROGRAM -- checks that huggingface_hub and llamero share one cache, with a local server.
#
# Requires: pip install huggingface_hub (tested with 2.4.0).  FOLDER must not exist, and is kept.
# SPDX-License-Identifier: Apache-2.0
"""Serves one dataset and one model as the Hub does, then: (1) the program fetches, and
huggingface_hub reads offline; (2) huggingface_hub fetches, and the program reads offline; (3) each
reads online from the other's cache without downloading any file again."""
import hashlib
import http.server
import json
import os
import pathlib
import subprocess
import sys
import threading
import urllib.parse

folder, program = pathlib.Path(sys.argv[1]), sys.argv[2]
COMMIT = "0123456789abcdef0123456789abcdef01234567"
REPOS = {
    "datasets/org/name": {"README.md": b"read me", "data/a.jsonl": b'{"text": "a"}\n' * 3,
                          "data/deep/b.jsonl": b'{"text": "b"}\n' * 1000},
    "models/org/model": {"config.json": b"{}", "model.safetensors": bytes(range(256)) * 64,
                         "tokenizer.json": b'{"x": 1}'},
}
bodies = []


def lfs(path):
    return path.endswith((".safetensors", "b.jsonl"))


def digest(path, data):
    if lfs(path):
        return hashlib.sha256(data).hexdigest()
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


def tree(repo, below, deep):
    seen = set()
    for path, data in REPOS[repo].items():
        if below and not path.startswith(below + "/"):
            continue
        rest = path[len(below) + 1 if below else 0:]
        if "/" in rest and not deep:
            name = path[:len(path) - len(rest)] + rest.split("/")[0]
            if name not in seen:
                yield {"type": "directory", "path": name, "oid": "0" * 40, "size": 0}
            seen.add(name)
            continue
        hash = digest(path, data)
        entry = {"type": "file", "path": path, "size": len(data), "oid": hash}
        if lfs(path):
            entry |= {"oid": "1" * 40, "lfs": {"oid": hash, "size": len(data), "pointerSize": 130}}
        yield entry


class Hub(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def answer(self, status, body=b"", **headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", headers.pop("length", str(len(body))))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        url = urllib.parse.urlparse(self.path)
        path, query = urllib.parse.unquote(url.path)[1:], urllib.parse.parse_qs(url.query)
        if path.startswith("api/"):
            repo = next((r for r in REPOS if path.startswith(f"api/{r}")), None)
            if repo is None:
                return self.answer(404, X_Error_Code="RepoNotFound")
            verb, _, rest = path[len(repo) + 5:].partition("/")
            if verb == "tree":
                below = rest.partition("/")[2]
                deep = query.get("recursive", [""])[0].lower() == "true"
                body = list(tree(repo, below, deep))
            else:
                body = {"id": repo.split("/", 1)[1], "sha": COMMIT, "private": False,
                        "gated": False, "disabled": False, "downloads": 0, "likes": 0, "tags": [],
                        "siblings": [{"rfilename": p} for p in REPOS[repo]]}
            return self.answer(200, json.dumps(body).encode(), Content_Type="application/json")
        if path.startswith("cdn/"):
            repo, _, name = path[4:].partition("//")
            data = REPOS[repo][name]
            if self.command == "GET":
                bodies.append(name)
            return self.answer(200, data, ETag=f'"{digest(name, data)}"')
        left, _, right = path.partition("/resolve/")
        repo = left if left.startswith("datasets/") else f"models/{left}"
        name = right.partition("/")[2]
        data = REPOS.get(repo, {}).get(name)
        if data is None:
            return self.answer(404, X_Error_Code="EntryNotFound")
        hash = digest(name, data)
        common = {"X_Repo_Commit": COMMIT, "Accept_Ranges": "bytes"}
        if lfs(name):
            other = f"http://localhost:{server.server_port}"  # another host name for the same server
            return self.answer(302, Location=f"{other}/cdn/{repo}//{name}?signed=1",
                               X_Linked_Etag=f'"{hash}"', X_Linked_Size=str(len(data)), **common)
        if self.command == "GET":
            bodies.append(name)
        return self.answer(200, data, ETag=f'"{hash}"', **common)


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hub)
threading.Thread(target=server.serve_forever, daemon=True).start()
endpoint = f"http://127.0.0.1:{server.server_port}"
SNAPSHOT = """
import sys, huggingface_hub as h
print(h.snapshot_download("org/name", repo_type="dataset", allow_patterns="data/*"))
print(h.snapshot_download("org/model"))
print(h.hf_hub_download("org/model", "model.safetensors"))
"""


def run(cache, command, offline):
    environment = dict(os.environ, HF_ENDPOINT=endpoint, HF_HOME=str(cache), no_proxy="*",
                       HF_HUB_OFFLINE=str(int(offline)), HF_HUB_DISABLE_XET="1")
    ran = subprocess.run(command, env=environment, capture_output=True, text=True)
    if ran.returncode:
        sys.exit(f"{command}: {ran.stdout}{ran.stderr}")
    return ran.stdout.split()


def theirs(cache, offline):
    data, model, weights = run(cache, [sys.executable, "-c", SNAPSHOT], offline)
    assert pathlib.Path(weights).parent == pathlib.Path(model), (weights, model)
    return data, model


def ours(cache, offline):
    data, deep, model = run(cache, [program, "fetch", "hf://datasets/org/name/data/*",
                                    "hf://datasets/org/name/data/*/*", "hf://org/model"], offline)
    return data.removesuffix("/data/*"), model


def same(cache, paths):
    for repo, path in zip(REPOS, paths):
        assert COMMIT in path, path
        for name, data in REPOS[repo].items():
            if name != "README.md":
                assert pathlib.Path(path, name).read_bytes() == data, name
                assert os.readlink(pathlib.Path(path, name)).startswith("../../"), name


for first, second in ((ours, theirs), (theirs, ours)):
    cache = folder / f"by-{first.__name__}"
    bodies.clear()
    paths = first(cache, False)
    wanted = [name for repo in REPOS.values() for name in repo if name != "README.md"]
    assert sorted(bodies) == sorted(wanted), bodies
    assert second(cache, True) == paths
    same(cache, paths)
    bodies.clear()
    assert second(cache, False) == paths and not bodies, bodies
    print(f"{second.__name__} read the cache of {first.__name__}")
