/* Every n-th call of the commands that write files. */
// SPDX-License-Identifier: Apache-2.0
#include "fault/trial.h"

#include "hub/http.h"
#include "hub/server.h"
#include "system/runs.h"

/* A scene whose command writes below folder/out. */
static struct scene begin(const char *name)
{
    struct scene s = {.name = name, .folder = test_folder(), .makes_folder = true};
    s.output = test_path(s.folder, "out");
    return s;
}

static void try_all(const struct scene *s, double share)
{
    trial_every(s, "call=file,action=kill", share);
    trial_every(s, "call=file,on=/,errno=EIO", share);
    trial_every(s, "call=write,on=/,errno=ENOSPC", share / 2);
    trial_every(s, "call=write,on=/,errno=ENOSPC,times=0", share / 2);
    trial_every(s, "call=read+write,on=/,action=short", share / 4);
    trial_every(s, "call=read+write,on=/,errno=EINTR", share / 4);
    trial_every(s, "call=malloc", share / 2);
}

TEST(prepare_survives_faults)
{
    struct scene s = begin("prepare");
    const char *corpus = test_path(s.folder, "corpus.jsonl");
    runs_write_corpus(corpus, 60000);
    const char *words[] = {
        "prepare",   "--tokenizer", "bytes", "--output", test_path(s.folder, "out/p"),
        "--workers", "1",           corpus};
    memcpy(s.words, words, sizeof words);
    scene_open(&s);
    try_all(&s, 1);
}

TEST(tokenizer_train_survives_faults)
{
    struct scene s = begin("tokenizer train");
    const char *corpus = test_path(s.folder, "corpus.txt");
    runs_write_corpus(corpus, 20000);
    const char *words[] = {"tokenizer",    "train",
                           "--force", /* the fault may have come after the rename */
                           "--output",     test_path(s.folder, "out/t.json"),
                           "--vocab-size", "300",
                           corpus};
    memcpy(s.words, words, sizeof words);
    scene_open(&s);
    try_all(&s, 0.5);
}

static void try_convert(const char *to)
{
    struct scene run, s = begin("convert");
    scene_train(&run, 1, "");
    bool is_file = !strcmp(to, "gguf");
    const char *words[] = {"convert", test_path(run.straight, "checkpoint/step-6"),
                           test_path(s.folder, is_file ? "out/m.gguf" : "out/m"), "--to", to};
    memcpy(s.words, words, sizeof words);
    scene_open(&s);
    try_all(&s, 0.4);
}

TEST(convert_to_hf_survives_faults) { try_convert("hf"); }
TEST(convert_to_dcp_survives_faults) { try_convert("dcp"); }
TEST(convert_to_gguf_survives_faults) { try_convert("gguf"); }

TEST(fetch_survives_faults)
{
    if (!http_available()) skip();
    struct scene s = begin("fetch");
    static struct server hub = {.repo = "datasets/org/name",
                                .commit = "0123456789012345678901234567890123456789",
                                .files = {{"a.txt", "the llama walks", false},
                                          {"b.txt", "over a mountain and carries salt", true}},
                                .num_files = 2};
    server_start(&hub);
    setenv("HF_ENDPOINT", hub.endpoint, 1);
    setenv("HF_HUB_CACHE", s.output, 1);
    const char *words[] = {"fetch", "hf://datasets/org/name/*.txt"};
    memcpy(s.words, words, sizeof words);
    scene_open(&s);
    try_all(&s, 0.4);
    server_stop(&hub);
    text_release(&hub.log);
}
